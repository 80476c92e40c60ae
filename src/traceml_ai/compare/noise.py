"""How far two means may differ although nothing changed: steps within a run, and runs among themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from traceml_ai.compare.history import levels

# Without anything to learn from, a run's mean step time is taken to vary by 2 % (standard deviation): an
# assumption on the safe side for a machine with nothing else on it. A busy one is worse, and can be learnt.
ASSUMED_PCT = 2.0
# An assumption counts like an estimate with this many degrees of freedom.
ASSUMED_DOF = 8
# Fewer degrees of freedom than this, and noise is better assumed than learnt.
LEAST_DOF = 4
# Below, differences of memory layout and clock speed outlive any average over earlier runs.
LEAST_PCT = 0.2


class Estimate(NamedTuple):
    """One run's mean of something."""

    value: float
    variance: float  # of the mean, from the run's own steps
    dof: float


class Floor(NamedTuple):
    """Run-to-run noise from elsewhere than the runs that are compared."""

    relative: float  # standard deviation of a run's mean over the mean
    dof: float
    runs: int  # runs it was learnt from; 0: assumed


class Spread(NamedTuple):
    """The uncertainty of the difference of two sides' means."""

    variance: float
    dof: float


ASSUMED = Floor(ASSUMED_PCT / 100, float(ASSUMED_DOF), 0)


class PastRun(NamedTuple):
    """An earlier run of the same script."""

    mean: float
    relative_variance: float | None  # of its mean, from its own steps; None: not known


def learn(groups: Sequence[Sequence[PastRun]]) -> Floor:
    """Learn the noise between runs from earlier ones.

    Changes between them (of the code, say) are not noise: each series is cut into levels first.

    Args:
        groups: Earlier runs in order of time, those with equal arguments and settings together.

    Returns:
        :data:`ASSUMED` when there are too few of them.
    """
    squares, dof, used, within = 0.0, 0, 0, 0.0
    for group in filter(None, groups):
        logs = np.log([run.mean for run in group])
        starts = levels(logs)
        for start, end in zip(starts, [*starts[1:], len(logs)], strict=True):
            squares += float(((logs[start:end] - logs[start:end].mean()) ** 2).sum())
            dof += end - start - 1
        used += len(group)
        within += sum(run.relative_variance or 0.0 for run in group)
    if dof < LEAST_DOF:
        return ASSUMED
    total = squares / dof
    between = max(total - within / used, (LEAST_PCT / 100) ** 2)
    # What is left of a variance after a subtraction is known worse than the whole was.
    return Floor(math.sqrt(between), dof * min(1.0, between / total) ** 2 if total else float(dof), used)


def own_dof(a: Sequence[Estimate], b: Sequence[Estimate]) -> int:
    """Return the degrees of freedom of the noise between the runs that are compared."""
    return len(a) + len(b) - 2


def speaks_for_itself(a: Sequence[Estimate], b: Sequence[Estimate]) -> bool:
    """Whether the runs compared are enough to know the noise between runs."""
    return own_dof(a, b) >= LEAST_DOF


def spread(
    a: Sequence[Estimate], b: Sequence[Estimate], floor_a: float, floor_b: float, floor_dof: float
) -> Spread:
    """Return the variance of ``mean(b) - mean(a)`` where nothing changed.

    With three runs a side (or as many degrees of freedom) the spread of run means tells: it holds both the
    noise between runs and what is left of the noise within. With one run a side it is the floor and the
    steps within. In between the two are weighed by their degrees of freedom, as in the moderated
    t-statistic (Smyth 2004), and what was found is never talked down.

    Args:
        a: The runs of one side.
        b: Those of the other.
        floor_a: Variance between runs to expect on side ``a``.
        floor_b: The same on side ``b``.
        floor_dof: Degrees of freedom behind the floors.
    """
    dof = own_dof(a, b)
    found = _pooled(a, b) * (1 / len(a) + 1 / len(b)) if dof else 0.0
    if dof >= LEAST_DOF:
        return Spread(found, float(dof))
    known = (floor_a / len(a) + floor_b / len(b), floor_dof)
    inner = [(run.variance / len(side) ** 2, run.dof) for side in (a, b) for run in side]
    expected = _combined([known, *inner])
    if dof == 0:
        return expected
    together = expected.dof + dof
    weighed = (expected.dof * expected.variance + dof * found) / together
    return Spread(max(found, weighed), together)


def _pooled(a: Sequence[Estimate], b: Sequence[Estimate]) -> float:
    squares = 0.0
    for side in (a, b):
        values = np.array([run.value for run in side])
        squares += float(((values - values.mean()) ** 2).sum())
    return squares / own_dof(a, b)


def _combined(parts: Sequence[tuple[float, float]]) -> Spread:
    """Add variances; degrees of freedom by Welch and Satterthwaite."""
    variance = sum(part for part, _ in parts)
    if variance == 0:
        return Spread(0.0, 1.0)
    return Spread(variance, variance**2 / sum(part**2 / dof for part, dof in parts))
