"""BALANCED: nothing stands out. Taken when no other rule about step time has something to say."""

from __future__ import annotations

from traceml_ai.diagnose import words
from traceml_ai.diagnose.signals import Signals
from traceml_ai.schema.summary import Finding, Scope

KIND = "BALANCED"


def meets_conditions(signals: Signals) -> bool:
    """There is a breakdown that may be judged."""
    return signals.judgeable is not None


def finding(signals: Signals) -> Finding:
    """Name the largest phase."""
    breakdown = signals.breakdown
    assert breakdown is not None
    shares = {name: figures.share or 0.0 for name, figures in breakdown.phases.items()}
    largest = max(shares, key=lambda name: shares[name])
    name = largest.replace("_", " ")
    return Finding(
        kind=KIND,
        severity="info",
        section="step_time",
        scope=Scope(phase=largest),
        why=f"No phase stands out; the largest is {name} with {words.percent(shares[largest])} of step time.",
        next="Nothing to fix first; a profiler is the next tool if the run should be faster.",
        evidence={f"{phase}_pct": 100 * share for phase, share in shares.items() if share},
    )
