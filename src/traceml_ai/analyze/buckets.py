"""The whole run in a bounded number of time buckets, which halve their resolution when full."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from traceml_ai.analyze.columns import EXT, N_EXT, Rows

MAX_BUCKETS = 512

# Eight bins per doubling is enough for a bucket's median: its use is to see levels change.
_BINS_PER_DOUBLING = 8
_STEP_BINS = 48 * _BINS_PER_DOUBLING


class BucketView(NamedTuple):
    """Buckets in run order; all but the last hold ``width`` steps."""

    width: int
    counts: NDArray[np.int64]  # (b,)
    sums: Rows  # (b, N_EXT); meaningless for points in time
    minima: Rows
    maxima: Rows
    step_bins: NDArray[np.int32]  # (b, bins)

    def median_step_ns(self) -> NDArray[np.float64]:
        """Return each bucket's median step time, within about 5 %."""
        cumulative = np.cumsum(self.step_bins, axis=1)
        middle = np.argmax(cumulative * 2 >= self.counts[:, None], axis=1)
        return np.asarray(np.exp2((middle + 0.5) / _BINS_PER_DOUBLING), dtype=np.float64)


class Buckets:
    """Count, sum, minimum and maximum of every column per bucket, and a histogram of step time.

    Args:
        most: So many buckets at most, an even number.
    """

    def __init__(self, most: int = MAX_BUCKETS) -> None:
        self._most = most
        self._width = 1
        self._used = 0
        self._counts = np.zeros(most, dtype=np.int64)
        self._sums = np.zeros((most, N_EXT), dtype=np.int64)
        self._minima = np.zeros((most, N_EXT), dtype=np.int64)
        self._maxima = np.zeros((most, N_EXT), dtype=np.int64)
        self._bins = np.zeros((most, _STEP_BINS), dtype=np.int32)

    def add(self, rows: Rows) -> None:
        """Add records that follow those added before."""
        start = 0
        while start < len(rows):
            if self._used == self._most and self._room() == 0:
                self._halve()
            start += self._fill(rows[start:])

    def view(self) -> BucketView:
        """Return the buckets so far, as copies."""
        n = self._used
        return BucketView(
            self._width,
            self._counts[:n].copy(),
            self._sums[:n].copy(),
            self._minima[:n].copy(),
            self._maxima[:n].copy(),
            self._bins[:n].copy(),
        )

    def step_curve(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], int]:
        """Return counts, sums and maxima of step time, and the width: cheap enough to ask twice a second."""
        n, step = self._used, EXT["step_ns"]
        return (
            self._counts[:n].copy(),
            self._sums[:n, step].copy(),
            self._maxima[:n, step].copy(),
            self._width,
        )

    def last_peak(self, index: int) -> int:
        """Return the largest value of a column in the newest bucket; 0: there is none."""
        return int(self._maxima[self._used - 1, index]) if self._used else 0

    def _room(self) -> int:
        """How many records still fit into the newest bucket."""
        return self._width - int(self._counts[self._used - 1]) if self._used else 0

    def _fill(self, rows: Rows) -> int:
        """Fill the newest bucket, or as many new ones as there is room for."""
        room = self._room()
        if room:
            part = rows[:room]
            self._merge_into_last(part)
            return len(part)
        part = rows[: (self._most - self._used) * self._width]
        starts = np.arange(0, len(part), self._width)
        new = slice(self._used, self._used + len(starts))
        self._counts[new] = np.diff(np.append(starts, len(part)))
        if self._width == 1:
            self._sums[new] = self._minima[new] = self._maxima[new] = part
        else:
            self._sums[new] = np.add.reduceat(part, starts, axis=0)
            self._minima[new] = np.minimum.reduceat(part, starts, axis=0)
            self._maxima[new] = np.maximum.reduceat(part, starts, axis=0)
        self._bins[new] = _step_bins(part, self._width, len(starts))
        self._used += len(starts)
        return len(part)

    def _merge_into_last(self, part: Rows) -> None:
        last = self._used - 1
        self._counts[last] += len(part)
        self._sums[last] += part.sum(axis=0)
        self._minima[last] = np.minimum(self._minima[last], part.min(axis=0))
        self._maxima[last] = np.maximum(self._maxima[last], part.max(axis=0))
        self._bins[last] += _step_bins(part, len(part), 1)[0]

    def _halve(self) -> None:
        half = self._most // 2
        self._counts[:half] = self._counts.reshape(half, 2).sum(axis=1)
        self._sums[:half] = self._sums.reshape(half, 2, N_EXT).sum(axis=1)
        self._minima[:half] = self._minima.reshape(half, 2, N_EXT).min(axis=1)
        self._maxima[:half] = self._maxima.reshape(half, 2, N_EXT).max(axis=1)
        self._bins[:half] = self._bins.reshape(half, 2, _STEP_BINS).sum(axis=1)
        self._used = half
        self._width *= 2


def _step_bins(rows: Rows, width: int, buckets: int) -> NDArray[np.int32]:
    steps = np.maximum(rows[:, EXT["step_ns"]], 1)
    bins = np.minimum(np.log2(steps) * _BINS_PER_DOUBLING, _STEP_BINS - 1).astype(np.int64)
    flat = (np.arange(len(rows)) // width) * _STEP_BINS + bins
    counted = np.bincount(flat, minlength=buckets * _STEP_BINS)
    return counted.reshape(buckets, _STEP_BINS).astype(np.int32)
