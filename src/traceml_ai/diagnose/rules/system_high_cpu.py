"""HIGH_CPU (system): the host's processors are all busy, whoever uses them."""

from __future__ import annotations

from traceml_ai.diagnose import words
from traceml_ai.diagnose.signals import Signals
from traceml_ai.schema.summary import Finding, Scope

KIND = "HIGH_CPU"

# On average over the run: whatever starts now has to wait for a processor.
BUSY_PCT = 95.0


def meets_conditions(signals: Signals) -> bool:
    """The host was busy on average."""
    return signals.host is not None and (signals.host.cpu_pct or 0.0) >= BUSY_PCT


def finding(signals: Signals) -> Finding:
    """Say how busy."""
    host = signals.host
    assert host is not None
    busy = host.cpu_pct or 0.0
    return Finding(
        kind=KIND,
        severity="info",  # shows in the step times if it matters
        section="system",
        scope=Scope(),
        why=f"The host's processors were {words.percent(busy / 100)} busy on average.",
        next="See whether other programs run beside the training; step times vary with them.",
        evidence={"cpu_pct": busy, "cpu_pct_max": host.cpu_pct_max},
        confidence="medium",
    )
