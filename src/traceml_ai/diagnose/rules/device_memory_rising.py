"""MEMORY_RISING (device): peak device memory still grows, unevenly."""

from __future__ import annotations

from traceml_ai.diagnose import words
from traceml_ai.diagnose.growth import device_growth
from traceml_ai.diagnose.signals import Signals
from traceml_ai.schema.summary import Finding, Scope

KIND = "MEMORY_RISING"


def meets_conditions(signals: Signals) -> bool:
    """The peak of a step grew materially until the end, though not evenly."""
    grown = device_growth(signals)
    return grown is not None and grown[0].still_rising and not grown[0].sustained


def finding(signals: Signals) -> Finding:
    """Say by how much."""
    grown = device_growth(signals)
    assert grown is not None
    growth, _ = grown
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
