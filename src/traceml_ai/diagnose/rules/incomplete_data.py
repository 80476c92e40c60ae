"""INCOMPLETE_DATA: steps were seen, but too few, too short or too little of them to judge."""

from __future__ import annotations

from traceml_ai.diagnose import words
from traceml_ai.diagnose.signals import MIN_STEPS, Signals
from traceml_ai.schema.summary import Finding

KIND = "INCOMPLETE_DATA"

# One of these must have been seen, or it is not known that the step trains anything.
_WORK = ("forward", "backward", "optimizer")


def meets_conditions(signals: Signals) -> bool:
    """Some steps, but no breakdown that may be judged, or one without any of the model's work."""
    return signals.steps > 0 and (signals.judgeable is None or not _saw_work(signals))


def finding(signals: Signals) -> Finding:
    """Say what is missing."""
    why, advice = _reason(signals)
    return Finding(
        kind=KIND,
        severity="info",
        section="step_time",
        why=why,
        next=advice,
        evidence={"steps": signals.steps, "needed_steps": MIN_STEPS, "step_ms": _step_ms(signals)},
        confidence="high",
    )


def _reason(signals: Signals) -> tuple[str, str]:
    if not signals.enough_steps or signals.breakdown is None:
        return (
            f"NOT_ENOUGH_DATA ({words.plural(signals.steps, 'step')}, need {MIN_STEPS}).",
            f"Run at least {MIN_STEPS} steps, better a hundred.",
        )
    if signals.judgeable is None:
        step = words.ms(signals.breakdown.step_ns)
        return (
            f"Steps of {step} are too short to judge: they are mostly interpreter.",
            "Nothing to fix for a small run; larger batches make each step worth more.",
        )
    return (
        "Neither forward, backward nor optimizer was seen inside the steps.",
        "Give the trained model to traceml.trace_step(model), and call the model itself, not model.forward.",
    )


def _saw_work(signals: Signals) -> bool:
    assert signals.breakdown is not None
    return any(signals.breakdown.phases[phase].coverage > 0 for phase in _WORK)


def _step_ms(signals: Signals) -> float | None:
    return signals.breakdown.step_ns / 1e6 if signals.breakdown else None
