"""MEMORY_RISING: host memory still grows, but it can't be told yet whether it will go on."""

from __future__ import annotations

from traceml_ai.analyze.hosts import MemoryFacts
from traceml_ai.diagnose import words
from traceml_ai.diagnose.growth import is_material
from traceml_ai.diagnose.signals import MIN_STEPS, MemoryScope, Signals, memory_series
from traceml_ai.schema.summary import Finding, Scope

KIND = "MEMORY_RISING"


def meets_conditions(signals: Signals) -> bool:
    """Main process or workers grew materially until the end, though not evenly."""
    return signals.steps >= MIN_STEPS and bool(_rising(signals))


def finding(signals: Signals) -> Finding:
    """Say which process grew."""
    scope, facts = _rising(signals)[0]
    growth = facts.growth
    assert growth is not None
    return Finding(
        kind=KIND,
        severity="info",
        section="process",
        scope=Scope(process=scope),
        why=f"Host memory of the {scope} rose by {words.size(growth.total)} over the later part of the run, "
        "unevenly; that may be a cache that fills.",
        next="Watch a longer run: a cache levels off, a leak does not.",
        evidence={"grown_bytes": growth.total, "last_bytes": facts.last_bytes},
        confidence="low",
    )


def _rising(signals: Signals) -> list[tuple[MemoryScope, MemoryFacts]]:
    return [
        (scope, facts)
        for scope, facts in memory_series(signals)
        if facts.growth
        and facts.growth.still_rising
        and not facts.growth.sustained
        and is_material(facts.growth, facts.last_bytes)
    ]
