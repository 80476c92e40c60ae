"""HIGH_RAM: the host's memory is nearly used up, whoever uses it."""

from __future__ import annotations

from traceml_ai.diagnose import words
from traceml_ai.diagnose.signals import Signals
from traceml_ai.schema.summary import Finding, Scope

KIND = "HIGH_RAM"

# From about here kernels push out the page cache, then start killing.
USED_PART = 0.92


def meets_conditions(signals: Signals) -> bool:
    """Most of the host's memory was in use at some moment."""
    return (_part(signals) or 0.0) >= USED_PART


def finding(signals: Signals) -> Finding:
    """Say how much."""
    part = _part(signals) or 0.0
    host = signals.host
    assert host is not None
    return Finding(
        kind=KIND,
        severity="warning",
        section="system",
        scope=Scope(),
        why=f"{words.percent(part)} of the host's {words.size(host.total_bytes or 0)} of memory was in use.",
        next="See what else uses memory on this host before the kernel ends one of the programs.",
        evidence={"used_bytes_max": host.used_bytes_max, "total_bytes": host.total_bytes},
        confidence="high",
    )


def _part(signals: Signals) -> float | None:
    host = signals.host
    if host is None or host.used_bytes_max is None or not host.total_bytes:
        return None
    return host.used_bytes_max / host.total_bytes
