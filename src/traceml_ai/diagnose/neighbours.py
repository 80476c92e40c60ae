"""Whether other programs keep the processors of the host busy: timings differ then without its doing."""

from __future__ import annotations

from traceml_ai.diagnose.signals import Signals

_BUSY_PCT, _OWN_PART = 90.0, 0.75


def others_busy(signals: Signals) -> bool:
    """Whether the host's processors are busy with more than this training."""
    host, cpu, usable = signals.host, signals.cpu, signals.usable_cpus
    if host is None or cpu is None or not usable or cpu.main_cores is None:
        return False
    own = cpu.main_cores + (cpu.workers_cores or 0.0)
    return (host.cpu_pct or 0.0) >= _BUSY_PCT and own * _ranks_here(signals) < _OWN_PART * usable


def _ranks_here(signals: Signals) -> int:
    """How many ranks are on the host of the first, taken to be like it."""
    ranks = signals.ranks
    return 1 if ranks is None else max(1, ranks.nodes.count(ranks.nodes[0]))
