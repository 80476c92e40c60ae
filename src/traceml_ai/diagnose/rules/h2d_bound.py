"""H2D_BOUND: the step copies its batches to the device."""

from __future__ import annotations

from traceml_ai.diagnose import words
from traceml_ai.diagnose.cost import Saving, cost_of, estimate, phase_severity
from traceml_ai.diagnose.signals import Signals
from traceml_ai.schema.summary import Finding, Scope

KIND = "H2D_BOUND"

# A pinned, overlapped copy costs the step next to nothing; a fifth of it is worth an afternoon.
H2D_SHARE = 0.20
# Of the copy's time, what is left when it only becomes faster (pinned) but is not overlapped.
_PINNED_LEFT = 0.5


def meets_conditions(signals: Signals) -> bool:
    """Copies to the device take a fifth of step time or more."""
    return (signals.share("h2d") or 0.0) >= H2D_SHARE


def finding(signals: Signals) -> Finding:
    """Say how much of the step it is, and which of the two settings is missing."""
    breakdown = signals.breakdown
    assert breakdown is not None
    copy = breakdown.per_step_ns("h2d") or 0.0
    share = breakdown.share("h2d") or 0.0
    cost = cost_of(signals, copy)
    pinned = signals.loader.get("pin_memory") if signals.loader else None
    return Finding(
        kind=KIND,
        severity=phase_severity(signals, cost.share),
        section="step_time",
        scope=Scope(phase="h2d"),
        why=f"Copying to the device takes {words.percent(share)} of step time "
        f"({words.ms(copy)} of {words.ms(breakdown.step_ns)}).",
        next=_next(pinned=pinned),
        evidence={"h2d_ms": copy / 1e6, "share_pct": 100 * share, "pin_memory": pinned},
        estimate=estimate(
            signals,
            Saving(
                0.75 * copy, _PINNED_LEFT * copy, copy, "the copy made faster by pinning, or hidden entirely"
            ),
        ),
        confidence="high" if breakdown.clock == "device" else "medium",
        cost_ms_per_step=copy / 1e6,
        saved_s=cost.saved_s,
    )


def _next(*, pinned: bool | None) -> str:
    if pinned:
        return (
            "Copy with .to(device, non_blocking=True) (pin_memory=True is set), copy less (smaller dtypes, "
            "augment on the device), or fetch the next batch to the device one step ahead."
        )
    now = "" if pinned is None else " (now False)"
    return f"Set pin_memory=True in the DataLoader{now} and copy with .to(device, non_blocking=True)."
