"""OUTSIDE_HEAVY: much of the loop's time lies between the steps."""

from __future__ import annotations

from traceml_ai.diagnose import words
from traceml_ai.diagnose.cost import Saving, cost_of, estimate, severity_of
from traceml_ai.diagnose.named import TOP
from traceml_ai.diagnose.signals import Signals
from traceml_ai.schema.summary import EvidenceValue, Finding, Scope

KIND = "OUTSIDE_HEAVY"

# Without it the loop would be 1.25 times as fast.
OUTSIDE_SHARE = 0.20
# Per step; a Python loop around very short steps takes up to this without anything being wrong.
LEAST_NS = 1e6

_CALLED = {
    "validation": "validation",
    "checkpoint": "saving checkpoints",
    "gc": "garbage collection",
    "loader": "starting and stopping the loader",
    "handlers": "callbacks",
    "other": "nothing that was recognised",
}
_ADVICE = {
    "validation": "Validate less often or on fewer batches, with larger batches under "
    "torch.inference_mode().",
    "checkpoint": "Save less often, or hand the state to a background thread.",
    "gc": "Call gc.collect() and gc.freeze() once before the loop.",
    "loader": "Set persistent_workers=True, or make epochs longer.",
    "handlers": "Look at the callbacks that run after every step, and let them run every N steps.",
    "other": "Look at what the loop does after the step: logging, .item(), metrics, plots; do it every "
    "N steps.",
}
_NO_LOADER = (
    "No loader was seen, so batches are probably made between the steps: move that into a DataLoader with "
    "num_workers > 0."
)


def meets_conditions(signals: Signals) -> bool:
    """A fifth of the loop's time, and a millisecond per step, lies between steps."""
    breakdown = signals.breakdown
    if breakdown is None or not signals.enough_steps:
        return False
    between = breakdown.phases["between_steps"]
    return (between.loop_share or 0.0) >= OUTSIDE_SHARE and (between.per_step_ns or 0.0) >= LEAST_NS


def finding(signals: Signals) -> Finding:
    """Say how much it is, and what it was."""
    breakdown = signals.breakdown
    assert breakdown is not None
    between = breakdown.per_step_ns("between_steps") or 0.0
    cost = cost_of(signals, between)
    cause = _cause(signals)
    part = signals.between_causes_ns.get(cause, 0.0)
    named = f" ({_costliest(signals)})" if cause == "handlers" and signals.handlers_ns else ""
    return Finding(
        kind=KIND,
        severity=severity_of(cost.share),
        section="step_time",
        scope=Scope(phase="between_steps"),
        why=f"{words.percent(cost.share)} of the loop's time lies between steps ({words.ms(between)} "
        "per step of "
        f"{words.ms(breakdown.step_ns)}), {words.ms(part)} of it {_CALLED[cause]}{named}.",
        next=_NO_LOADER if cause == "other" and _no_input(signals) else _ADVICE[cause],
        evidence=_evidence(signals, cause, between, cost.share),
        estimate=estimate(
            signals,
            Saving(
                0.75 * part, 0.5 * part, part, f"half to all of {_CALLED[cause]} taken out", in_step=False
            ),
        )
        if cause != "other"
        else None,
        confidence="medium" if cause == "other" else "high",
        cost_ms_per_step=between / 1e6,
        saved_s=cost.saved_s,
    )


def _evidence(signals: Signals, cause: str, between: float, share: float) -> dict[str, EvidenceValue]:
    handlers: list[float | int | str | None] = list(signals.handlers_ns)
    return {
        "cause": cause,
        "between_steps_ms": between / 1e6,
        "share_pct": 100 * share,
        **{f"{name}_ms": value / 1e6 for name, value in signals.between_causes_ns.items()},
        **({"handlers": handlers[:TOP]} if handlers else {}),
    }


def _costliest(signals: Signals) -> str:
    """Return the costliest handlers with what each takes per step."""
    return ", ".join(f"{name} {words.ms(ns)}" for name, ns in [*signals.handlers_ns.items()][:TOP])


def _cause(signals: Signals) -> str:
    causes = signals.between_causes_ns
    return max(causes, key=lambda name: causes[name]) if causes else "other"


def _no_input(signals: Signals) -> bool:
    assert signals.breakdown is not None
    return signals.breakdown.phases["input_wait"].coverage == 0
