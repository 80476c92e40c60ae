"""Processor and memory use over the run, for drawing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from traceml_ai.schema.samples import HostSample

MAX_POINTS = 120


class HostPoints(NamedTuple):
    """Readings in order of time; ``None``: not read at that moment."""

    at_ns: list[int]  # since the start of the run
    main_cores: list[float | None]  # processors kept busy since the point before
    workers_cores: list[float | None]
    main_rss_bytes: list[int | None]
    workers_pss_bytes: list[int | None]
    host_cpu_pct: list[float | None]
    host_used_bytes: list[int | None]


def host_curves(samples: Sequence[HostSample], start_ns: int) -> HostPoints:
    """Return processor and memory use in at most ``MAX_POINTS`` points.

    Args:
        samples: Of one process, in order of time.
        start_ns: When the run began, on the clock of the samples.
    """
    groups = _groups(samples)
    points = [group[-1] for group in groups]
    pairs = list(zip([None, *points], points, strict=False))
    return HostPoints(
        [point.t_ns - start_ns for point in points],
        [_cores(old, new, workers=False) for old, new in pairs],
        [_cores(old, new, workers=True) for old, new in pairs],
        [point.main_rss_bytes or None for point in points],
        [_last_pss(group) for group in groups],
        [_mean([sample.host_cpu_pct for sample in group]) for group in groups],
        [point.host_used_bytes for point in points],
    )


def _groups(samples: Sequence[HostSample]) -> list[Sequence[HostSample]]:
    size = max(1, -(-len(samples) // MAX_POINTS))
    return [samples[at : at + size] for at in range(0, len(samples), size)]


def _cores(old: HostSample | None, new: HostSample, *, workers: bool) -> float | None:
    if old is None or new.t_ns <= old.t_ns:
        return None
    before, now = (old.workers_cpu_s, new.workers_cpu_s) if workers else (old.main_cpu_s, new.main_cpu_s)
    if before is None or now is None:
        return None
    # Only live workers are counted: when one ends, the sum falls, which is no negative use.
    return max(0.0, now - before) / ((new.t_ns - old.t_ns) / 1e9)


def _last_pss(group: Sequence[HostSample]) -> int | None:
    """Return the newest reading of the workers' memory, which only some samples have."""
    known = [sample.workers_pss_bytes for sample in group if sample.workers and sample.workers_pss_bytes]
    return known[-1] if known else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
