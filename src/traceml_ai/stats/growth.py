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
# So many samples, and two in each of so many equal stretches of x: with fewer teeth can't be seen
# between them, and nothing is called sustained.
_ENOUGH, _SEGMENTS, _LEAST_IN_SEGMENT = 16, 8, 2
# Any two late segments in a row must rise by this part of the average; more would fail on staircases.
_LEAST_PART = 0.3
# The second half of the late part must rise by this part of the first: less is a curve levelling off.
_HALVES_PART = 0.5
# The middle of the last segment must lie above that of the one before by this part of the average: the
# envelope alone sees a plateau one segment late.
_LAST_PART = 0.15
# So many single rises that make up nearly all of the growth are caches filling, not a leak.
_FEW, _MOST_OF_GROWTH = 3, 0.9

_FALL = 0.2  # of the whole rise


class Growth(NamedTuple):
    """The lower envelope over the late part of a series."""

    total: float  # rise of the envelope, in the unit of the values; negative: it fell
    per_x: float  # the same per unit of x
    sustained: bool  # it rose all along and is not levelling off
    still_rising: bool  # it rose over the last two segments, and no segment fell
    increments: list[float]


def late_growth(x: NDArray[Any], y: NDArray[Any]) -> Growth | None:
    """Describe how ``y`` grows with ascending ``x``, leaving out the first segment.

    Returns:
        ``None`` when there are fewer than ``MIN_SAMPLES`` samples or ``x`` stands still.
    """
    if len(x) < MIN_SAMPLES:
        return None
    parts, dense = _late_segments(x)
    # The place of each minimum is jittery; the middle of its segment is not.
    at = np.array([float(x[part].mean()) for part in parts])
    span = at[-1] - at[0]
    if span <= 0:
        return None
    lowest = np.array([float(y[part].min()) for part in parts])
    envelope = _lasting(lowest)
    rises = np.diff(envelope)
    total = float(envelope[-1] - envelope[0])
    sustained = total > 0 and dense and _all_along(rises, total) and _goes_on(parts, x, y, total / span)
    return Growth(
        total,
        float(total / span),
        sustained,
        _to_the_end(lowest, rises, total),
        [float(rise) for rise in rises],
    )


def _late_segments(x: NDArray[Any]) -> tuple[list[NDArray[np.int64]], bool]:
    """Return indices by segment, the first left out, and whether there are samples enough in each."""
    every = np.arange(len(x))
    edges = np.linspace(x[0], x[-1], _SEGMENTS + 1)[1:-1]
    parts = np.split(every, np.searchsorted(x, edges))[1:]
    if len(x) >= _ENOUGH and min(len(part) for part in parts) >= _LEAST_IN_SEGMENT:
        return parts, True
    return np.split(every, len(every))[1:], False


def _lasting(values: NDArray[Any]) -> NDArray[Any]:
    """Return for each value the least from there on: noise and teeth vanish, lasting rises stay."""
    return np.minimum.accumulate(values[::-1])[::-1]


def _all_along(rises: NDArray[Any], total: float) -> bool:
    half = len(rises) // 2
    early, late = float(rises[:half].sum()), float(rises[-half:].sum())
    in_pairs = rises[:-1] + rises[1:]
    return bool(in_pairs.min() >= 2 * _LEAST_PART * total / len(rises) and late >= _HALVES_PART * early)


def _goes_on(parts: list[NDArray[np.int64]], x: NDArray[Any], y: NDArray[Any], slope: float) -> bool:
    """Whether growth goes on in the last segment, exceeds the teeth, and is not a few single rises."""
    middles = [float(np.median(y[part])) for part in parts[-2:]]
    total = slope * (float(x[parts[-1]].mean()) - float(x[parts[0]].mean()))
    single = np.sort(np.diff(_lasting(y[parts[0][0] :])))
    return bool(
        middles[1] - middles[0] >= _LAST_PART * total / (len(parts) - 1)
        and total >= _swing(parts, y - x * slope)
        and single[-_FEW:].sum() < _MOST_OF_GROWTH * total
    )


def _to_the_end(lowest: NDArray[Any], rises: NDArray[Any], total: float) -> bool:
    """Whether the last two segments rose, and no segment fell much, as the last tooth of a saw would."""
    fell = -float(np.diff(lowest).min())
    return total > 0 and bool(rises[-2:].min() >= _LEAST_PART * total / len(rises)) and fell < _FALL * total


def _swing(parts: list[NDArray[np.int64]], level: NDArray[Any]) -> float:
    """Return how far values move within a segment, the growth taken out.

    A sawtooth that is sampled a few times per tooth has an envelope that drifts with the beat of the
    two; growth has to exceed the teeth.
    """
    return float(np.median([np.ptp(level[part]) for part in parts]))
