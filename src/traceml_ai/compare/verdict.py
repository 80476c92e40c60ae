"""The verdict on step time: an interval of its change, and what it would take where it says too little."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, NamedTuple

from traceml_ai.compare.noise import Estimate, Floor, own_dof, speaks_for_itself, spread
from traceml_ai.compare.student import quantile

Judgement = Literal["IMPROVEMENT", "REGRESSION", "SAME", "UNKNOWN"]

# An interval covers the true change in so many cases of a hundred. Not 95: at 95 every second sample of 200
# unchanged pairs would show more than its 5 % of false alarms.
LEVEL_PCT = 97.0
# SAME means: not different by as much as this.
SAME_PCT = 3.0
# A change that surely lies within this, either way, is SAME even where it is surely there.
NEGLIGIBLE_PCT = 1.0
# Nobody is told to run more than this often, or this many times as long.
MOST_RUNS = 50
MOST_TIMES_AS_LONG = 100

# With fewer runs a side their own noise is not enough to judge by.
_FEWEST_RUNS = 3
_LONGER = (2, 4, 8, 16, 32, 64)


class Interval(NamedTuple):
    """A change of step time as the logarithm of ``b / a``."""

    change: float
    half: float

    @property
    def change_pct(self) -> float:
        """The change in per cent."""
        return 100 * math.expm1(self.change)

    @property
    def low_pct(self) -> float:
        """The lower end in per cent."""
        return 100 * math.expm1(self.change - self.half)

    @property
    def high_pct(self) -> float:
        """The upper end in per cent."""
        return 100 * math.expm1(min(self.change + self.half, _MOST_LOG))


class Wanted(NamedTuple):
    """What would decide: either of the two, or only both together; ``None``: that alone would not."""

    runs_a_side: int | None
    times_as_long: int | None
    together: bool = False


# An interval of logarithms as wide as this says nothing, and exp() of more would overflow.
_MOST_LOG = 50.0


def t_value(dof: float, tests: int = 1) -> float:
    """Return how many standard errors an interval reaches, corrected for the number of tests (Bonferroni)."""
    return quantile(1 - (1 - LEVEL_PCT / 100) / (2 * tests), dof)


def interval(a: Sequence[Estimate], b: Sequence[Estimate], floor: Floor) -> Interval:
    """Return the interval of the change of step time.

    Args:
        a: Logarithms of run means of the baseline, with relative variances.
        b: Those of the other side.
        floor: The noise between runs, from elsewhere.
    """
    found = spread(a, b, floor.relative**2, floor.relative**2, floor.dof)
    return Interval(_mean(b) - _mean(a), t_value(found.dof) * math.sqrt(found.variance))


def _mean(side: Sequence[Estimate]) -> float:
    return math.fsum(run.value for run in side) / len(side)


def judge(found: Interval) -> Judgement:
    """Return what an interval says.

    It leaves zero out: ``REGRESSION`` or ``IMPROVEMENT``, unless it lies within 1 % either way. It lies
    within 3 % either way: ``SAME``. Otherwise ``UNKNOWN``: a change that matters can't be ruled out.
    """
    low, high = found.low_pct, found.high_pct
    if max(-low, high) < NEGLIGIBLE_PCT:
        return "SAME"
    if low > 0:
        return "REGRESSION"
    if high < 0:
        return "IMPROVEMENT"
    return "SAME" if max(-low, high) < SAME_PCT else "UNKNOWN"


def wanted(found: Interval, a: Sequence[Estimate], b: Sequence[Estimate], floor: Floor) -> Wanted:
    """Return how many runs a side, or how many times the steps, would decide, if the change is what it seems.

    Args:
        found: The interval that says too little.
        a: The runs of the baseline.
        b: Those of the other side.
        floor: The noise between runs, from elsewhere.
    """
    size = abs(found.change)
    enough = max(size, math.log1p(SAME_PCT / 100) - size)
    within = math.fsum(run.variance for run in (*a, *b)) / len((*a, *b))
    between = _between(a, b, floor, within)
    fewest = max(_FEWEST_RUNS, min(len(a), len(b)) + 1)

    def by_runs(runs: int, times: int = 1) -> bool:
        variance = 2 * (between + within / times) / runs
        return t_value(2 * runs - 2) * math.sqrt(variance) < enough

    def by_steps(times: int) -> bool:
        if not speaks_for_itself(a, b):
            return interval(_longer(a, times), _longer(b, times), floor).half < enough
        variance = (between + within / times) * (1 / len(a) + 1 / len(b))
        return t_value(own_dof(a, b)) * math.sqrt(variance) < enough

    alone = Wanted(_first(by_runs, fewest, MOST_RUNS), _first(by_steps, 2, MOST_TIMES_AS_LONG))
    if alone.runs_a_side is not None or alone.times_as_long is not None:
        return alone
    pairs = [(_first(partial(by_runs, times=times), fewest, MOST_RUNS), times) for times in _LONGER]
    both = [Wanted(runs, times, together=True) for runs, times in pairs if runs is not None]
    return min(both, key=_work, default=alone)


def _work(both: Wanted) -> int:
    return (both.runs_a_side or 0) * (both.times_as_long or 0)


def _longer(side: Sequence[Estimate], times: int) -> list[Estimate]:
    return [run._replace(variance=run.variance / times) for run in side]


def _between(a: Sequence[Estimate], b: Sequence[Estimate], floor: Floor, within: float) -> float:
    """Variance between runs beyond what their steps explain."""
    if not speaks_for_itself(a, b):
        return floor.relative**2
    whole = spread(a, b, 0.0, 0.0, 1.0).variance / (1 / len(a) + 1 / len(b))
    return max(0.0, whole - within)


def _first(holds: Callable[[int], bool], start: int, most: int) -> int | None:
    return next((n for n in range(start, most + 1) if holds(n)), None)
