"""Levels of a series of runs: where step time changed from one run to the next, and stayed so."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from traceml_ai.compare.student import quantile

Floats = NDArray[np.float64]

# A level holds at least this many runs: one odd run is no change.
LEAST_RUNS = 2
# A smaller change is not worth a mark.
LEAST_CHANGE_PCT = 1.0
# Chance that a series without a change gets a mark.
FALSE_ALARM = 0.02
# The noise of runs is not believed to be smaller.
LEAST_NOISE_PCT = 0.3

# So many times the noise from both its neighbours, a run is odd.
_ODD = 5.0
# Median of |x - y| of two standard normal values.
_SIGMA_PER_DIFFERENCE = 1 / 0.9539
# A median of differences of neighbours is worth so much of as many independent values.
_EFFICIENCY = 0.35


def levels(logs: NDArray[Any]) -> list[int]:
    """Return where the levels of a series begin; the first is 0 (and of nothing, there is none).

    Binary segmentation (Scott and Knott 1974): the split with the largest difference of means in units of
    its standard error, kept when that is larger than chance would make it anywhere, then both parts again.

    Args:
        logs: Logarithms of step times, in order of time.
    """
    values = _without_odd_runs(np.asarray(logs, dtype=np.float64))
    starts = [0] if len(values) else []
    waiting = [(0, values)]
    while waiting:  # not by recursion: a series may be long
        at, part = waiting.pop()
        found = _best_split(part, values)
        if found is not None:
            starts.append(at + found)
            waiting += [(at, part[:found]), (at + found, part[found:])]
    return sorted(starts)


def _without_odd_runs(logs: Floats) -> Floats:
    """Replace single runs that are far from both neighbours: they would make a level with one of them."""
    if len(logs) <= LEAST_RUNS:
        return logs
    padded = np.concatenate([logs[2:3], logs, logs[-3:-2]])
    usual = np.median(np.lib.stride_tricks.sliding_window_view(padded, 3), axis=1)
    far = _ODD * max(_neighbour_noise(logs), LEAST_NOISE_PCT / 100)
    return np.where(np.abs(logs - usual) > far, usual, logs)


def _best_split(part: Floats, whole: Floats) -> int | None:
    """Return where a part of the series is best cut in two, or ``None`` where chance explains the best cut.

    The scale is judged in two ways, each with half the chance of a false alarm. The spread around the two
    means is the better one, but other changes within the part hide behind it. The median difference of
    neighbours, over the whole series, hardly sees any changes.
    """
    n = len(part)
    if n < 2 * LEAST_RUNS:
        return None
    left = np.arange(LEAST_RUNS, n - LEAST_RUNS + 1)
    centred = part - part.mean()
    sums = np.cumsum(centred)[left - 1]
    change = -sums * n / (left * (n - left))
    error = np.sqrt(1 / left + 1 / (n - left))
    best = int(np.argmax(np.abs(change) / error))
    within = float(centred @ centred) - (change[best] / error[best]) ** 2
    size = abs(change[best]) / error[best]
    own = _is_more(size, math.sqrt(max(within, 0.0) / (n - 2)), n - 2, len(left))
    neighbours = _is_more(size, _neighbour_noise(whole), _EFFICIENCY * (len(whole) - 1), len(whole))
    large = abs(change[best]) >= math.log1p(LEAST_CHANGE_PCT / 100)
    return int(left[best]) if large and (own or neighbours) else None


def _is_more(size: float, noise: float, dof: float, places: int) -> bool:
    limit = quantile(1 - FALSE_ALARM / (4 * places), dof)
    return size > limit * max(noise, LEAST_NOISE_PCT / 100)


def _neighbour_noise(logs: Floats) -> float:
    return _SIGMA_PER_DIFFERENCE * float(np.median(np.abs(np.diff(logs))))


class Level(NamedTuple):
    """Consecutive runs with the same step time but for noise."""

    first: int  # index of the first run
    runs: int
    step_ms: float  # geometric mean
    change_pct: float | None  # against the level before; None: there is none


def level_table(step_ms: Sequence[float]) -> list[Level]:
    """Return the levels of a series of step times (ms, in order of time)."""
    logs = np.log(np.asarray(step_ms, dtype=np.float64))
    starts = levels(logs)
    means = [float(part.mean()) for part in np.split(logs, starts[1:])] if starts else []
    changes = [None, *(100 * math.expm1(after - before) for before, after in itertools.pairwise(means))]
    ends = [*starts[1:], len(logs)]
    return [
        Level(start, end - start, math.exp(mean), change)
        for start, end, mean, change in zip(starts, ends, means, changes, strict=False)
    ]
