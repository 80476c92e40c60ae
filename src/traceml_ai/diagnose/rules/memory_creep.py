"""MEMORY_CREEP: host memory grows with every step and does not level off."""

from __future__ import annotations

from traceml_ai.analyze.hosts import MemoryFacts
from traceml_ai.diagnose import words
from traceml_ai.diagnose.growth import is_material
from traceml_ai.diagnose.signals import MIN_STEPS, MemoryScope, Signals, memory_series
from traceml_ai.schema.summary import EvidenceValue, Finding, Scope, Severity

KIND = "MEMORY_CREEP"

# The next so many times the run's steps would exhaust memory: that is a run that will be killed.
_SOON = 2.0
# Growth as even as this has not been seen of anything else.
STRAIGHT = 0.97

_ADVICE: dict[MemoryScope, str] = {
    "main process": "Look for tensors kept from step to step: appending a loss keeps its whole graph, "
    "so keep "
    "loss.item() or loss.detach(), and del what a step no longer needs.",
    "loader workers": "Keep the dataset's items in arrays or tensors instead of Python objects (each "
    "worker copies "
    "shared pages as it touches them), and look for caches in __getitem__.",
}


def meets_conditions(signals: Signals) -> bool:
    """Main process or workers grew materially in every late part of the run."""
    return signals.steps >= MIN_STEPS and bool(_creeping(signals))


def finding(signals: Signals) -> Finding:
    """Say which process grows, and by how much a step."""
    scope, facts = max(_creeping(signals), key=lambda item: item[1].growth.total if item[1].growth else 0.0)
    growth = facts.growth
    assert growth is not None
    left = _steps_left(signals, facts)
    soon = "" if left is None else f", enough for about {words.plural(int(left), 'more step')}"
    return Finding(
        kind=KIND,
        severity=_severity(signals, left),
        section="process",
        scope=Scope(process=scope),
        why=f"Host memory of the {scope} grows by {words.size(growth.per_x)} a step and does not level off "
        f"(now {words.size(facts.last_bytes)}{soon}).",
        next=_ADVICE[scope],
        evidence=_evidence(signals, facts, left),
        confidence="high" if growth.straightness >= STRAIGHT else "medium",
    )


def _creeping(signals: Signals) -> list[tuple[MemoryScope, MemoryFacts]]:
    return [
        (scope, facts)
        for scope, facts in memory_series(signals)
        if facts.growth and facts.growth.sustained and is_material(facts.growth, facts.last_bytes)
    ]


def _steps_left(signals: Signals, facts: MemoryFacts) -> float | None:
    held = sum(series.last_bytes for _, series in memory_series(signals))
    if signals.memory_limit_bytes is None or facts.growth is None:
        return None
    return max(0.0, signals.memory_limit_bytes - held) / facts.growth.per_x


def _severity(signals: Signals, left: float | None) -> Severity:
    return "critical" if left is not None and left < _SOON * signals.steps else "warning"


def _evidence(signals: Signals, facts: MemoryFacts, left: float | None) -> dict[str, EvidenceValue]:
    growth = facts.growth
    assert growth is not None
    per_epoch = signals.steps_per_epoch
    return {
        "bytes_per_step": growth.per_x,
        "bytes_per_epoch": growth.per_x * per_epoch if per_epoch else None,
        "grown_bytes": growth.total,
        "last_bytes": facts.last_bytes,
        "steps_left": left,
        "straightness": growth.straightness,
    }
