"""NO_DATA: no training step was seen."""

from __future__ import annotations

from traceml_ai.diagnose import words
from traceml_ai.diagnose.signals import Signals
from traceml_ai.schema.summary import Finding

KIND = "NO_DATA"


def meets_conditions(signals: Signals) -> bool:
    """Not one step closed."""
    return signals.steps == 0


def finding(signals: Signals) -> Finding:
    """Say what was missing."""
    return Finding(
        kind=KIND,
        severity="info",
        section="step_time",
        why=_why(signals),
        next=_next(signals),
        evidence={"steps": 0, "aborted_steps": signals.aborted_steps},
        confidence="high",
    )


def _why(signals: Signals) -> str:
    if signals.aborted_steps:
        return f"No training step ended ({words.plural(signals.aborted_steps, 'step')} begun and aborted)."
    if signals.running:
        return "No training step has ended yet."
    return "No training step was recognised: no model call with backward and optimizer step was seen."


def _next(signals: Signals) -> str:
    if signals.exception:
        return f"Look at the script's {signals.exception} first."
    if signals.running:
        return "Wait: start-up, starting workers, the first batch and compiling come before the first step."
    return "If this script trains, mark its step: with traceml.trace_step(model): ..."
