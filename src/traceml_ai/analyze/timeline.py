"""Every second of a run: start-up, steps, time between steps by cause, shut-down."""

from __future__ import annotations

from typing import NamedTuple

from traceml_ai.analyze.aggregate import RankAggregate
from traceml_ai.analyze.columns import EXT
from traceml_ai.schema.step import BETWEEN_CAUSES


class Timeline(NamedTuple):
    """Nanoseconds that add up: ``total = startup + steps + between + shutdown``."""

    total_ns: int
    startup_ns: int
    steps_ns: int
    between_ns: int
    shutdown_ns: int
    by_cause: dict[str, int]  # adds up to between_ns; "traceml" is our own work


def timeline(aggregate: RankAggregate, start_ns: int, end_ns: int) -> Timeline | None:
    """Account for the time between two moments of the host clock; ``None`` when no step was seen.

    After the last step, what has a known cause (a last validation, a checkpoint) is time between
    steps, the rest is shut-down. What lies between records that were kept and has no cause of its own
    (aborted, dropped or excluded steps) is ``other``.
    """
    if aggregate.first_begin_ns is None or aggregate.last_close_ns is None:
        return None
    first = max(aggregate.first_begin_ns, start_ns)
    last = min(max(aggregate.last_close_ns, first), max(end_ns, first))
    end = max(end_ns, last)
    steps = min(int(aggregate.sums[EXT["step_ns"]]), last - first)
    tail = _tail_causes(aggregate, end - last)
    causes = {
        cause: int(aggregate.sums[EXT[f"between_{cause}_ns"]]) + tail.get(cause, 0)
        for cause in BETWEEN_CAUSES
        if cause != "other"
    }
    causes["traceml"] = int(aggregate.sums[EXT["own_ns"]]) + tail.get("traceml", 0)
    in_tail = sum(tail.values())
    between = last - first - steps + in_tail
    causes["other"] = between - sum(causes.values())
    return Timeline(end - start_ns, first - start_ns, steps, between, end - last - in_tail, causes)


def _tail_causes(aggregate: RankAggregate, room_ns: int) -> dict[str, int]:
    """Return the known causes after the last step, never more than the time there was."""
    columns = {cause: f"between_{cause}_ns" for cause in BETWEEN_CAUSES if cause != "other"}
    columns["traceml"] = "own_ns"
    known = {}
    for cause, name in columns.items():
        known[cause] = min(int(aggregate.tail_sums[EXT[name]]), room_ns)
        room_ns -= known[cause]
    return known
