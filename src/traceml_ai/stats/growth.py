"""Growth that goes on, told apart from a level that was reached, a few rises, or a sawtooth.

Monotone-trend tests (Mann-Kendall, Theil-Sen, comparing first, middle and last thirds) call all of
those a trend. Here a line is fitted to what is never undercut again (the least value from each sample
on): teeth and noise do not show in it, lasting rises do. Of a leak it is nearly straight, also when an
allocator makes a fine staircase of it; of a plateau or of single rises it is not, and of a sawtooth it
is flat up to the last tooth.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MIN_SAMPLES = 6
# With fewer, a line through teeth or noise is too easily straight.
ENOUGH_SAMPLES = 16
# Left out: memory settles at first.
_SETTLING_PART = 1 / 8
# Part of the variance that a line explains. In simulations with the noise of a real resident set leaks
# had 0.94 and more, plateaus up to 0.89 (nine in ten each); real ones of 0.1 MB a step 0.88 and more.
_STRAIGHT = 0.88
# So many single rises that make up so much of the growth are caches filling one after the other.
_FEW, _MOST_OF_GROWTH = 3, 0.8
# The last third must rise at this part of the overall slope, the second half at this part of the first:
# less is a curve levelling off.
_LAST_THIRD, _SECOND_HALF = 0.4, 0.5
# A rise of the second half alone asks for less, and is only called rising.
_STRAIGHT_HALF = 0.85


class Growth(NamedTuple):
    """How the lasting level rose, the start left out."""

    total: float  # rise of the fitted line, in the unit of the values; negative: never, the level is lasting
    per_x: float  # the same per unit of x
    straightness: float  # part of the variance that the line explains, 0..1
    sustained: bool  # it rose all along, straight and to the end
    still_rising: bool  # its second half did


class _Line(NamedTuple):
    slope: float
    straightness: float


def late_growth(x: NDArray[Any], y: NDArray[Any]) -> Growth | None:
    """Describe how ``y`` grows with ascending ``x``.

    Returns:
        ``None`` when there are fewer than ``MIN_SAMPLES`` samples or ``x`` stands still.
    """
    if len(x) < MIN_SAMPLES or x[-1] <= x[0]:
        return None
    from_x = x[0] + _SETTLING_PART * (x[-1] - x[0])
    at, level = x[x >= from_x].astype(np.float64), _lasting(y[x >= from_x].astype(np.float64))
    line = _fit(at, level)
    total = line.slope * float(at[-1] - at[0])
    # A tooth that only climbs to where an earlier one has been is nothing new.
    new = total > 0 and bool(y[: len(y) // 4 + 1].max() < level[-1]) and _many_rises(level)
    goes_on = new and _goes_on(at, level, line.slope)
    return Growth(
        total,
        line.slope,
        line.straightness,
        goes_on and line.straightness >= _STRAIGHT and len(x) >= ENOUGH_SAMPLES,
        goes_on and _fit(*_part(at, level, 1 / 2)).straightness >= _STRAIGHT_HALF,
    )


def _lasting(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return for each value the least from there on, the last two taken together."""
    level: NDArray[np.float64] = np.minimum.accumulate(values[::-1])[::-1]
    level[-1] = level[-2:].min()
    return level


def _many_rises(level: NDArray[np.float64]) -> bool:
    single = np.sort(np.diff(level))
    return bool(single[-_FEW:].sum() < _MOST_OF_GROWTH * (level[-1] - level[0]))


def _goes_on(at: NDArray[np.float64], level: NDArray[np.float64], slope: float) -> bool:
    first = _fit(*_part(at, level, 0.0, 1 / 2)).slope
    second = _fit(*_part(at, level, 1 / 2)).slope
    last_third = _fit(*_part(at, level, 2 / 3)).slope
    return second >= _SECOND_HALF * first and last_third >= _LAST_THIRD * slope


def _part(
    at: NDArray[np.float64], level: NDArray[np.float64], begin: float, end: float = 1.0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    span = at[-1] - at[0]
    inside = (at >= at[0] + begin * span) & (at <= at[0] + end * span)
    return at[inside], level[inside]


def _fit(at: NDArray[np.float64], level: NDArray[np.float64]) -> _Line:
    """Fit a line; samples count by the stretch they stand for, as they need not be even."""
    if len(at) == 0 or at[-1] <= at[0]:
        return _Line(0.0, 0.0)
    weight = np.gradient(at)
    centred = at - np.average(at, weights=weight)
    risen = level - np.average(level, weights=weight)
    spread = float((weight * risen**2).sum())
    slope = float((weight * centred * risen).sum() / (weight * centred**2).sum())
    return _Line(slope, slope * float((weight * centred * risen).sum()) / spread if spread else 0.0)
