"""MEMORY_RISING (device): peak device memory still grows, unevenly."""

from __future__ import annotations

from traceml_ai.diagnose import words
from traceml_ai.diagnose.growth import is_material
from traceml_ai.diagnose.signals import MIN_STEPS, Signals
from traceml_ai.schema.summary import Finding, Scope

KIND = "MEMORY_RISING"


def meets_conditions(signals: Signals) -> bool:
    """The peak of a step grew materially until the end, though not evenly."""
    memory = signals.step_memory
    if memory is None or memory.growth is None or signals.steps < MIN_STEPS:
        return False
    growth = memory.growth
    return growth.still_rising and not growth.sustained and is_material(growth, memory.peak_allocated_bytes)


def finding(signals: Signals) -> Finding:
    """Say by how much."""
    memory = signals.step_memory
    assert memory is not None
    growth = memory.growth
    assert growth is not None
    return Finding(
        kind=KIND,
        severity="info",
        section="step_memory",
        scope=Scope(),
        why=f"Peak device memory rose by {words.size(growth.total)} over the later part of the run, "
        "unevenly.",
        next="Watch a longer run; batches of growing size level off, a leak does not.",
        evidence={"grown_bytes": growth.total},
        confidence="low",
    )
