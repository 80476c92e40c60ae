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
_SEGMENTS = 8
# Below so many samples each is its own segment, teeth can't be seen between them, and nothing is
# called sustained.
_ENOUGH = 16
# Any two late segments in a row must rise by this part of the average; more would fail on staircases.
_LEAST_PART = 0.3
# A segment may fall by this part of the average rise: the noise of a resident set.
_MOST_FALL = 0.5
# The second half of the late part must rise by this part of the first: less is a curve levelling off.
_HALVES_PART = 0.5
# The middle of the last segment must lie above that of the one before by this part of the average: the
# envelope alone sees a plateau one segment late.
_LAST_PART = 0.15
# So many single rises that make up most of the growth are caches filling, not a leak.
_FEW, _MOST_OF_GROWTH = 3, 0.7


class Growth(NamedTuple):
    """The lower envelope over the late part of a series."""

    total: float  # rise of the envelope, in the unit of the values; negative: it fell
    per_x: float  # the same per unit of x
    sustained: bool  # it rose all along and is not levelling off
    still_rising: bool  # it rose over the last two segments and never fell back
    increments: list[float]


def late_growth(x: NDArray[Any], y: NDArray[Any]) -> Growth | None:
    """Describe how ``y`` grows with ascending ``x``, leaving out the first segment.

    Returns:
        ``None`` when there are fewer than ``MIN_SAMPLES`` samples or ``x`` stands still.
    """
    if len(x) < MIN_SAMPLES:
        return None
    few = len(x) < _ENOUGH
    parts = np.array_split(np.arange(len(x)), len(x) if few else _SEGMENTS)[1:]
    # The place of each minimum is jittery; the middle of its segment is not.
    at = np.array([float(x[part].mean()) for part in parts])
    envelope = np.array([float(y[part].min()) for part in parts])
    span = at[-1] - at[0]
    if span <= 0:
        return None
    rises = np.diff(envelope)
    total = float(envelope[-1] - envelope[0])
    sustained = (
        not few and total > 0 and _all_along(rises, total) and _is_no_sum_of_few(parts, x, y, total / span)
    )
    return Growth(
        total, float(total / span), sustained, _to_the_end(rises, total), [float(rise) for rise in rises]
    )


def _all_along(rises: NDArray[Any], total: float) -> bool:
    average = total / len(rises)
    half = len(rises) // 2
    early, late = float(rises[:half].sum()), float(rises[-half:].sum())
    return bool(
        (rises[:-1] + rises[1:]).min() >= 2 * _LEAST_PART * average
        and rises.min() >= -_MOST_FALL * average
        and late >= _HALVES_PART * early
    )


def _is_no_sum_of_few(parts: list[NDArray[np.int64]], x: NDArray[Any], y: NDArray[Any], slope: float) -> bool:
    """Whether growth goes on in the last segment, exceeds the teeth, and is not a few single rises."""
    middles = [float(np.median(y[part])) for part in parts[-2:]]
    late = y[parts[0][0] :]
    # What is never undercut again: noise and teeth do not show in it, lasting rises do.
    lasting = np.diff(np.minimum.accumulate(late[::-1])[::-1])
    total = slope * (float(x[parts[-1]].mean()) - float(x[parts[0]].mean()))
    return bool(
        middles[1] - middles[0] >= _LAST_PART * total / (len(parts) - 1)
        and total >= _swing(parts, y - x * slope)
        and np.sort(lasting)[-_FEW:].sum() < _MOST_OF_GROWTH * total
    )


def _to_the_end(rises: NDArray[Any], total: float) -> bool:
    average = total / len(rises)
    return total > 0 and bool(
        rises[-2:].min() >= _LEAST_PART * average and rises.min() > -_LEAST_PART * total
    )


def _swing(parts: list[NDArray[np.int64]], level: NDArray[Any]) -> float:
    """Return how far values move within a segment, the growth taken out.

    A sawtooth that is sampled a few times per tooth has an envelope that drifts with the beat of the
    two; growth has to exceed the teeth.
    """
    return float(np.median([np.ptp(level[part]) for part in parts]))
