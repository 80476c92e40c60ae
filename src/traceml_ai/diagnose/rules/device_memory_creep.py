"""MEMORY_CREEP (device): peak device memory grows with every step and does not level off."""

from __future__ import annotations

from traceml_ai.diagnose import words
from traceml_ai.diagnose.growth import device_growth
from traceml_ai.diagnose.signals import Signals
from traceml_ai.schema.summary import Finding, Scope

KIND = "MEMORY_CREEP"


def meets_conditions(signals: Signals) -> bool:
    """The peak of a step grew materially in every late part of the run."""
    grown = device_growth(signals)
    return grown is not None and grown[0].sustained


def finding(signals: Signals) -> Finding:
    """Say by how much a step."""
    grown = device_growth(signals)
    assert grown is not None
    growth, peak_bytes = grown
    return Finding(
        kind=KIND,
        severity="warning",
        section="step_memory",
        scope=Scope(),
        why=f"Peak device memory grows by {words.size(growth.per_x)} a step and does not level off "
        f"(now {words.size(peak_bytes)}).",
        next="Look for tensors kept from step to step: keep loss.item() or loss.detach() instead of the "
        "loss.",
        evidence={"bytes_per_step": growth.per_x, "grown_bytes": growth.total},
        confidence="high",
    )
