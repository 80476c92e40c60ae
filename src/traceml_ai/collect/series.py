"""Host samples of a whole run in bounded memory: the resolution halves when they get too many."""

from __future__ import annotations

from collections.abc import Iterable

from traceml_ai.schema.samples import HostSample

LIMIT = 4096


class SampleSeries:
    """The samples of one process, evenly thinned, first to last.

    Args:
        limit: Keep fewer than so many; an even number.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._stride = 1  # one of so many is kept
        self._kept: list[HostSample] = []
        self._pending: list[HostSample] = []
        self._newest: HostSample | None = None

    def add(self, sample: HostSample) -> None:
        """Take in the next sample."""
        self._newest = sample
        self._pending.append(sample)
        if len(self._pending) < self._stride:
            return
        self._kept.append(_telling(self._pending))
        self._pending.clear()
        if len(self._kept) == self._limit:
            self._stride *= 2
            pairs = (self._kept[at : at + 2] for at in range(0, self._limit, 2))
            self._kept = [_telling(pair) for pair in pairs]

    @property
    def newest(self) -> HostSample | None:
        """The last one taken in."""
        return self._newest

    def samples(self) -> list[HostSample]:
        """Return what was kept, and the newest one in any case."""
        if self._newest is None or self._newest in self._kept[-1:]:
            return list(self._kept)
        return [*self._kept, self._newest]


def _telling(samples: Iterable[HostSample]) -> HostSample:
    """Return the first with the workers' memory, which only few samples have, else the first."""
    listed = list(samples)
    return next((sample for sample in listed if sample.workers_pss_bytes is not None), listed[0])
