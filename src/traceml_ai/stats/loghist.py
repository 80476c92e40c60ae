"""Log-scale histograms of durations: bounded memory, quantiles within about one percent.

A bin is the exponent and the first five mantissa bits of the value as a float: between 32 and 64 bins
per doubling in relative width, found by a shift instead of a logarithm (the idea of HDR histograms).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

_SHIFT = 52 - 5
_DRAWN_WIDTH = 4  # bins in one that is drawn: eight per doubling show a second mode
_BIAS = 1023 << 5  # the bin of 1.0 before it is moved to 1
_DOUBLINGS = 48  # up to 2**48 ns, three days
BINS = (_DOUBLINGS << 5) + 1  # bin 0 holds everything below 1


def bins_of(values: Ints) -> Ints:
    """Return the bin of each value (nanoseconds); below 1 is bin 0, beyond the last is the last."""
    raw = (values.astype(np.float64).view(np.int64) >> _SHIFT) - (_BIAS - 1)
    return np.where(values < 1, 0, np.minimum(raw, BINS - 1))


def count(values: Ints) -> Ints:
    """Return how many of the values fall into each bin."""
    return np.bincount(bins_of(values), minlength=BINS)


def _edge(index: int) -> float:
    bits = np.array([(index + _BIAS - 1) << _SHIFT], dtype=np.int64)
    return float(bits.view(np.float64)[0])


def quantile(counts: Ints, q: float) -> float | None:
    """Return the ``q`` quantile of what was counted, interpolated inside its bin.

    Returns:
        The value in the unit that was counted; ``None`` when nothing was.
    """
    total = int(counts.sum())
    if total == 0:
        return None
    target = max(q * total, 1.0)  # at least the first value
    cumulative = np.cumsum(counts)
    index = int(np.searchsorted(cumulative, target))
    if index == 0:
        return 0.0
    # Never empty: the cumulative count only reaches the target in a bin that holds something.
    part = (target - float(cumulative[index - 1])) / float(counts[index])
    low, high = _edge(index), _edge(index + 1)
    return low + (high - low) * min(1.0, max(0.0, part))


def coarse(counts: Ints, most: int) -> tuple[list[float], list[int]]:
    """Return what was counted in few bins, for drawing.

    Args:
        counts: As `count` returns them.
        most: At most so many bins.

    Returns:
        Edges in the unit that was counted, one more than there are bins, and the counts; the first and the
        last bin hold something. Empty when nothing was counted.
    """
    used = np.flatnonzero(counts)
    if len(used) == 0:
        return [], []
    width = _DRAWN_WIDTH
    while used[-1] // width - used[0] // width >= most:
        width *= 2
    first, last = int(used[0]) // width, int(used[-1]) // width
    padded = np.pad(counts, (0, -len(counts) % width))
    merged = padded.reshape(-1, width).sum(axis=1)[first : last + 1]
    edges = [0.0 if index == 0 else _edge(index * width) for index in range(first, last + 2)]
    return edges, merged.tolist()
