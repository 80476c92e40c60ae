"""HOST_MEMORY_PRESSURE: the training process has nearly used up the memory it may have."""

from __future__ import annotations

from traceml_ai.diagnose import words
from traceml_ai.diagnose.signals import Signals, memory_series
from traceml_ai.schema.summary import Finding, Scope

KIND = "HOST_MEMORY_PRESSURE"

# The page cache has little left to work with, and one larger batch ends the run.
WARNING_PART = 0.90
CRITICAL_PART = 0.97


def meets_conditions(signals: Signals) -> bool:
    """Main process and workers hold nine tenths of their limit."""
    return (_part(signals) or 0.0) >= WARNING_PART


def finding(signals: Signals) -> Finding:
    """Say how much of the limit is used."""
    part = _part(signals) or 0.0
    limit = signals.memory_limit_bytes or 0
    return Finding(
        kind=KIND,
        severity="critical" if part >= CRITICAL_PART else "warning",
        section="process",
        scope=Scope(),
        why=f"Training process and workers held {words.percent(part)} of the {words.size(limit)} they "
        "may use.",
        next="Use fewer workers, a smaller prefetch_factor or smaller batches, or ask for more memory.",
        evidence={"peak_bytes": _peak(signals), "limit_bytes": limit},
        confidence="high",
    )


def _peak(signals: Signals) -> int:
    return sum(facts.peak_bytes for _, facts in memory_series(signals))


def _part(signals: Signals) -> float | None:
    limit = signals.memory_limit_bytes
    return _peak(signals) / limit if limit else None
