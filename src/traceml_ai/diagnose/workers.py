"""What more loader workers would give: a small queueing model of loop and loader.

With ``W`` workers the loop can't turn faster than a batch is produced (``production / W``), nor faster
than it consumes one. When producing is processor work, workers and loop also share the processors
that this process may use.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from traceml_ai.diagnose.cost import Saving
from traceml_ai.diagnose.signals import Signals

Work = Literal["processor", "waiting", "unknown"]

# Above and below these parts of the producing time on a processor, it is one or the other.
_MOSTLY_BUSY, _MOSTLY_IDLE = 0.7, 0.3
# Handing a batch over from a worker costs the loop about this much: a queue, a shared-memory map and
# the waking of a thread (tens to hundreds of microseconds on common machines).
_HANDOVER_NS = 1.5e5
# At best a turn takes so much of what the model says: consuming was measured beside producing, and the
# two slow each other.
_LUCKY = 0.9
# When every processor is busy each gets less done than by itself: they share memory and caches, and on many
# machines two of them are one core. So much longer work takes then, likely and at worst; measured: 1.14
# to 1.44 times (docs/evidence/accuracy.md).
_CROWDED, _MOST_CROWDED = 1.25, 1.5
# More workers must promise this much less time, or they are not the advice.
_WORTH = 0.05


class Plan(NamedTuple):
    """The best number of workers within the processors that may be used."""

    num_workers: int
    now: int
    work: Work
    saving: Saving


def producing(signals: Signals) -> Work:
    """Tell from processor use whether producing a batch is processor work or waiting."""
    low, high = _busy_part(signals)
    if low >= _MOSTLY_BUSY:
        return "processor"
    return "waiting" if high <= _MOSTLY_IDLE else "unknown"


def plan(signals: Signals) -> Plan | None:
    """Return the setting to try; ``None`` when more workers would not help, or nothing is known."""
    now, usable, loop = signals.workers, signals.usable_cpus, signals.loop_ns
    wait = signals.breakdown.per_step_ns("input_wait") if signals.breakdown else None
    if now is None or usable is None or loop is None or wait is None:
        return None
    most = max(1, math.floor(usable))
    production = wait if now == 0 else now * loop
    consume = loop - wait
    best = min(most, max(1, math.ceil(production / max(consume, 1.0))))
    work = producing(signals)
    free = max(consume + _HANDOVER_NS, production / best)
    in_turn = _shared_ns(signals, production, consume, usable)
    shared, crowded, most_crowded = (max(free, in_turn * by) for by in (1.0, _CROWDED, _MOST_CROWDED))
    expected = {"processor": crowded, "waiting": free, "unknown": (free + shared) / 2}[work]
    if best <= now or expected > (1 - _WORTH) * loop:
        return None
    likely_most = free if work != "processor" else shared
    likely_least = {"processor": most_crowded, "waiting": free, "unknown": crowded}[work]
    return Plan(
        best,
        now,
        work,
        Saving(
            expected_ns=loop - expected,
            # Workers never start and share quite evenly, so some of the gain is not counted on.
            least_ns=max(0.0, 0.85 * (loop - likely_least)),
            most_ns=min(wait, loop - _LUCKY * likely_most),
            basis=_basis(now, work),
        ),
    )


def _shared_ns(signals: Signals, production: float, consume: float, usable: float) -> float:
    """Time per turn when loop and workers need the processors at once."""
    threads = min(float(signals.torch_threads or 1), usable)
    return (production + consume * threads) / usable


def _basis(now: int, work: Work) -> str:
    made = (
        "a batch takes the measured wait to produce"
        if now == 0
        else f"a batch takes {now} x the step time to produce, as the workers never catch up"
    )
    kind = {
        "processor": "which is processor work",
        "waiting": "which is mostly waiting",
        "unknown": "by processor work or waiting, which could not be told",
    }[work]
    return f"{made}, {kind}"


def _busy_part(signals: Signals) -> tuple[float, float]:
    """Bounds of the part of the producing time that was spent on a processor."""
    breakdown, cpu = signals.breakdown, signals.cpu
    if breakdown is None or cpu is None or not cpu.steady:
        return 0.0, 1.0
    if signals.workers:
        busy = cpu.workers_cores
        return (0.0, 1.0) if busy is None else (busy / signals.workers, busy / signals.workers)
    wait = breakdown.per_step_ns("input_wait")
    if cpu.main_cores is None or not wait:
        return 0.0, 1.0
    busy_ns = cpu.main_cores * breakdown.loop_ns
    consume = breakdown.loop_ns - wait
    # Each of torch's threads may or may not have been busy while the loop computed.
    return (busy_ns - consume * (signals.torch_threads or 1)) / wait, (busy_ns - consume) / wait
