"""What the samples say: memory against steps, processors kept busy, the host beside us."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from traceml_ai.analyze.aggregate import RankAggregate
from traceml_ai.analyze.columns import EXT
from traceml_ai.schema.samples import HostSample
from traceml_ai.stats.growth import Growth, late_growth

Floats = NDArray[np.float64]

# Enough for a day at one sample in twenty seconds; more only costs time.
_MAX_SAMPLES = 4096


class MemoryFacts(NamedTuple):
    """Host memory of the main process or of its loader workers."""

    last_bytes: int
    peak_bytes: int
    growth: Growth | None  # bytes against steps, steady part only


class CpuFacts(NamedTuple):
    """Processors kept busy on average, over the steady part where it was sampled, else the run."""

    main_cores: float | None
    workers_cores: float | None
    steady: bool


class HostFacts(NamedTuple):
    """The host, whoever used it."""

    cpu_pct: float | None
    cpu_pct_max: float | None
    used_bytes_max: int | None
    total_bytes: int | None
    used_part: float | None  # of all memory, at the last sample


def thinned(samples: Sequence[HostSample]) -> list[HostSample]:
    """Return at most ``_MAX_SAMPLES`` of the samples, evenly, the last one always."""
    stride = -(-len(samples) // _MAX_SAMPLES) if samples else 1
    return list(samples[::-1][::stride][::-1])


def step_at(aggregate: RankAggregate, times_ns: NDArray[np.int64]) -> Floats:
    """Return how many steps had closed at each moment (a fraction inside a bucket of steps)."""
    view = aggregate.buckets()
    if len(view.counts) == 0:
        return np.zeros(len(times_ns))
    closes = np.concatenate([[view.minima[0, EXT["begin_ns"]]], view.maxima[:, EXT["close_ns"]]])
    done = np.concatenate([[0], np.cumsum(view.counts)])
    return np.asarray(np.interp(times_ns, closes, done), dtype=np.float64)


def memory(
    aggregate: RankAggregate, samples: Sequence[HostSample], warmup: int, *, of_workers: bool
) -> MemoryFacts | None:
    """Describe a memory series; ``None`` when it was never sampled."""
    known = [(s.t_ns, _memory_of(s, of_workers=of_workers)) for s in samples]
    pairs = [(t, value) for t, value in known if value is not None]
    if not pairs:
        return None
    times = np.array([t for t, _ in pairs], dtype=np.int64)
    values = np.array([value for _, value in pairs], dtype=np.float64)
    steps = step_at(aggregate, times)
    # Before the first and after the last step memory moves for other reasons.
    inside = (steps > warmup) & (times <= (aggregate.last_close_ns or 0))
    return MemoryFacts(int(values[-1]), int(values.max()), late_growth(steps[inside], values[inside]))


def _memory_of(sample: HostSample, *, of_workers: bool) -> int | None:
    # A process that is ending holds nothing any more: that is no measurement of the run.
    if not of_workers:
        return sample.main_rss_bytes or None
    return (sample.workers_pss_bytes or None) if sample.workers > 0 else None


def cpu(samples: Sequence[HostSample], steady_from_ns: int | None) -> CpuFacts:
    """Return how many processors the training process and its workers kept busy."""
    if steady_from_ns is not None:
        late = [s for s in samples if s.t_ns >= steady_from_ns]
        if len(late) > 1:
            return _cpu_facts(late, steady=True)
    return _cpu_facts(samples, steady=False)


def _cpu_facts(samples: Sequence[HostSample], *, steady: bool) -> CpuFacts:
    return CpuFacts(
        main_cores=_cores([(s.t_ns, s.main_cpu_s) for s in samples]),
        workers_cores=_cores([(s.t_ns, s.workers_cpu_s) for s in samples]),
        steady=steady,
    )


def _cores(readings: Sequence[tuple[int, float | None]]) -> float | None:
    known = [(t, value) for t, value in readings if value is not None]
    if not known or known[-1][0] <= known[0][0]:
        return None
    # Only live workers are counted: when one ends, the sum falls, which is no negative use.
    used = np.maximum(np.diff([value for _, value in known]), 0.0).sum()
    return float(used) / ((known[-1][0] - known[0][0]) / 1e9)


def host(samples: Sequence[HostSample]) -> HostFacts | None:
    """Describe the host; ``None`` without samples."""
    if not samples:
        return None
    busy = [s.host_cpu_pct for s in samples if s.host_cpu_pct is not None]
    used = [s.host_used_bytes for s in samples if s.host_used_bytes is not None]
    total = samples[-1].host_total_bytes
    return HostFacts(
        cpu_pct=float(np.mean(busy)) if busy else None,
        cpu_pct_max=max(busy, default=None),
        used_bytes_max=max(used, default=None),
        total_bytes=total,
        used_part=used[-1] / total if used and total else None,
    )
