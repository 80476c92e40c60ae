"""MEMORY_CREEP (device): peak device memory grows with every step and does not level off."""

from __future__ import annotations

from traceml_ai.diagnose import words
from traceml_ai.diagnose.growth import is_material
from traceml_ai.diagnose.signals import MIN_STEPS, Signals
from traceml_ai.schema.summary import Finding, Scope

KIND = "MEMORY_CREEP"


def meets_conditions(signals: Signals) -> bool:
    """The peak of a step grew materially in every late part of the run."""
    memory = signals.step_memory
    if memory is None or memory.growth is None or signals.steps < MIN_STEPS:
        return False
    return memory.growth.sustained and is_material(memory.growth, memory.peak_allocated_bytes)


def finding(signals: Signals) -> Finding:
    """Say by how much a step."""
    memory = signals.step_memory
    assert memory is not None
    growth = memory.growth
    assert growth is not None
    return Finding(
        kind=KIND,
        severity="warning",
        section="step_memory",
        scope=Scope(),
        why=f"Peak device memory grows by {words.size(growth.per_x)} a step and does not level off "
        f"(now {words.size(memory.peak_allocated_bytes)}).",
        next="Look for tensors kept from step to step: keep loss.item() or loss.detach() instead of the "
        "loss.",
        evidence={"bytes_per_step": growth.per_x, "grown_bytes": growth.total},
        confidence="high",
    )
