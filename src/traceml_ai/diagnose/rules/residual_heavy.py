"""RESIDUAL_HEAVY: the step does something that is none of its phases."""

from __future__ import annotations

from traceml_ai.diagnose import words
from traceml_ai.diagnose.cost import Saving, cost_of, estimate, phase_severity
from traceml_ai.diagnose.signals import Signals
from traceml_ai.schema.summary import Finding, Scope

KIND = "RESIDUAL_HEAVY"

# zero_grad, the loss and the interpreter between the calls take 5 to 15 % of a step of a few
# milliseconds; a fifth is something else.
RESIDUAL_SHARE = 0.20
# Without these two the residual holds the model's own work and can't be judged.
NEEDED = ("forward", "backward")
# With so much coverage the steps that missed a phase don't make the residual.
LEAST_COVERAGE = 0.8

# A known cause is named, and advised about, from a fifth of the residual on.
NAMED_PART = 0.2

_ADVICE = {
    "checkpoint": "torch.save runs inside the step: save less often, or hand the state to a background "
    "thread.",
    "validation": "Evaluate less often, or outside the training step: an evaluation pass runs inside it.",
    "other": "Look inside the step for .item(), logging, metrics or file writes; do them every N steps, "
    "or name "
    "them with traceml.phase(name) to see which it is.",
}

_CALLED = {"checkpoint": "torch.save", "validation": "an evaluation pass"}

# What MONAI's trainer spends its residual on, see `traceml_ai.integrations`.
_PARTS_ADVICE = {
    "loss": "The loss function takes it: look for Python loops, .item() and copies in it.",
    "decollation": "Splitting the batch into items takes it: pass decollate=False to the trainer where "
    "nothing needs single items.",
    "postprocessing": "Postprocessing runs on every training batch: leave it to the evaluator, or do it "
    "every N-th step.",
    "prepare_batch": "prepare_batch takes it: move its work into the dataset's transforms, where workers "
    "do it.",
    "zero_grad": "Zeroing gradients takes it: pass optim_set_to_none=True to the trainer.",
    "network.train": "Switching the network to training mode takes it: look at what its train() does.",
    "gradient scaler": "The gradient scaler looks through all gradients: bf16 needs none.",
}
_HANDLER_ADVICE = (
    "It runs inside the step: attach it to Events.ITERATION_COMPLETED(every=N), or do less in it."
)


def meets_conditions(signals: Signals) -> bool:
    """The residual takes a fifth of step time or more, and the model's own phases were seen."""
    breakdown = signals.judgeable
    if breakdown is None or (breakdown.share("residual") or 0.0) < RESIDUAL_SHARE:
        return False
    if _known_cause(signals):
        return True
    seen = all(breakdown.phases[phase].coverage >= LEAST_COVERAGE for phase in NEEDED)
    # An update by hand lies in the residual, and how much of it is the update can't be told.
    return seen and not signals.hand_written_updates


def finding(signals: Signals) -> Finding:
    """Say how much of the step it is, by cause as far as known."""
    breakdown = signals.breakdown
    assert breakdown is not None
    residual = breakdown.per_step_ns("residual") or 0.0
    share = breakdown.share("residual") or 0.0
    cost = cost_of(signals, residual)
    cause = _main_cause(signals)
    known = (
        ""
        if cause == "other"
        else f", {words.ms(signals.residual_causes_ns[cause])} of it {_CALLED.get(cause, cause)}"
    )
    return Finding(
        kind=KIND,
        severity=phase_severity(signals, cost.share),
        section="step_time",
        scope=Scope(phase="residual"),
        why=f"{words.percent(share)} of step time ({words.ms(residual)} of {words.ms(breakdown.step_ns)}) "
        f"is in the step but in none of its phases{known}.",
        next=_ADVICE.get(cause) or _PARTS_ADVICE.get(cause, _HANDLER_ADVICE),
        evidence={
            "residual_ms": residual / 1e6,
            "share_pct": 100 * share,
            **{f"{name}_ms": value / 1e6 for name, value in signals.residual_causes_ns.items()},
        },
        estimate=estimate(
            signals,
            Saving(0.75 * residual, 0.5 * residual, residual, "half to all of the residual taken out"),
        ),
        confidence="medium" if cause == "other" else "high",
        cost_ms_per_step=residual / 1e6,
        saved_s=cost.saved_s,
    )


def _main_cause(signals: Signals) -> str:
    """Return the largest known cause if it is a fair part of the residual, else ``other``."""
    causes = signals.residual_causes_ns
    known = [name for name in causes if name != "other"]
    largest = max(known, key=lambda name: causes[name], default="other")
    return largest if causes.get(largest, 0.0) >= NAMED_PART * sum(causes.values()) > 0 else "other"


def _known_cause(signals: Signals) -> bool:
    """Whether one known cause alone is heavy."""
    assert signals.breakdown is not None
    causes = signals.residual_causes_ns
    known = max((value for name, value in causes.items() if name != "other"), default=0.0)
    return known >= RESIDUAL_SHARE * signals.breakdown.step_ns
