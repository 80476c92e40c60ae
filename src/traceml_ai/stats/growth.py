"""Growth that goes on, told apart from a level that was reached, one rise, or a sawtooth.

Monotone-trend tests (Mann-Kendall, Theil-Sen, comparing first, middle and last thirds) call all of
those a trend. Here the lower envelope of consecutive segments has to rise in every late segment by a
fair part of the average rise: a plateau has segments that do not rise, a single rise has one that
does, a sawtooth falls back to the envelope it came from.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MIN_SAMPLES = 6
_FINE = (24, 8)  # from so many samples on, so many segments
_COARSE = (12, 6)
# Every late segment must rise by this part of the average; half of it would fail on ordinary noise.
_LEAST_PART = 0.3
# The last one by this part: less is a curve that is levelling off.
_LAST_PART = 0.5


class Growth(NamedTuple):
    """The lower envelope over the late part of a series."""

    total: float  # rise of the envelope, in the unit of the values; negative: it fell
    per_x: float  # the same per unit of x
    sustained: bool  # it rose in every late segment and is not levelling off
    still_rising: bool  # it rose over the last two segments and never fell back
    increments: list[float]


def late_growth(x: NDArray[Any], y: NDArray[Any]) -> Growth | None:
    """Describe how ``y`` grows with ascending ``x``, leaving out the first segment.

    Returns:
        ``None`` when there are fewer than ``MIN_SAMPLES`` samples or ``x`` stands still.
    """
    if len(x) < MIN_SAMPLES:
        return None
    parts = np.array_split(np.arange(len(x)), _segments(len(x)))[1:]
    # The place of each minimum is jittery; the middle of its segment is not.
    at = np.array([float(x[part].mean()) for part in parts])
    envelope = np.array([float(y[part].min()) for part in parts])
    span = at[-1] - at[0]
    if span <= 0:
        return None
    rises = np.diff(envelope)
    total = float(envelope[-1] - envelope[0])
    average = total / len(rises)
    sustained = average > 0 and bool(
        rises.min() >= _LEAST_PART * average
        and rises[-1] >= _LAST_PART * average
        and total >= _swing(parts, y - x * (total / span))
    )
    still = total > 0 and bool(
        rises[-2:].min() >= _LEAST_PART * average and rises.min() > -_LEAST_PART * total
    )
    return Growth(total, float(total / span), sustained, still, [float(rise) for rise in rises])


def _swing(parts: list[NDArray[np.int64]], level: NDArray[Any]) -> float:
    """Return how far values move within a segment, the growth taken out.

    A sawtooth that is sampled a few times per tooth has an envelope that drifts with the beat of the
    two; growth has to exceed the teeth.
    """
    return float(np.median([np.ptp(level[part]) for part in parts]))


def _segments(samples: int) -> int:
    for least, segments in (_FINE, _COARSE):
        if samples >= least:
            return segments
    return samples
