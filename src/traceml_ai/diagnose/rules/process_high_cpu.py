"""HIGH_CPU (process): training uses all the processors that it may use."""

from __future__ import annotations

from traceml_ai.diagnose import words
from traceml_ai.diagnose.signals import Signals
from traceml_ai.schema.summary import Finding, Scope

KIND = "HIGH_CPU"

# More can't be kept busy by adding workers or threads.
BUSY_PART = 0.95


def meets_conditions(signals: Signals) -> bool:
    """Main process and workers keep the usable processors busy."""
    return (_part(signals) or 0.0) >= BUSY_PART


def finding(signals: Signals) -> Finding:
    """Say how many of how many."""
    cores, usable = _cores(signals), signals.usable_cpus or 0.0
    return Finding(
        kind=KIND,
        severity="info",  # on a processor, training is meant to use it
        section="process",
        scope=Scope(),
        why=f"Training keeps {words.number(cores)} of {words.number(usable)} usable processors busy.",
        next="More workers or threads will not help on this machine; cheaper batches or more processors "
        "will.",
        evidence={"busy_cpus": cores, "usable_cpus": usable},
        confidence="medium",
    )


def _cores(signals: Signals) -> float:
    cpu = signals.cpu
    return (cpu.main_cores or 0.0) + (cpu.workers_cores or 0.0) if cpu else 0.0


def _part(signals: Signals) -> float | None:
    return _cores(signals) / signals.usable_cpus if signals.usable_cpus else None
