"""How well one run's mean is known from its own steps, although neighbouring steps are alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Enough cosines for a usable number of degrees of freedom, few enough to see only the slow part of a run.
_MOST_COSINES = 8
_BLOCKS_PER_COSINE = 3
# A stronger correlation of neighbouring blocks can't be told from a trend in so few of them.
_MOST_CORRELATION = 0.97
LEAST_BLOCKS = 6


# A mean beyond this (ms: thirty years) is a damaged file, and would overflow.
_MOST_MS = 1e12
# So is a mean below this that is not zero: a nanosecond in one of a million million steps.
_LEAST_MS = 1e-18


class Precision(NamedTuple):
    """The precision of the mean of one run's block means."""

    variance: float  # of the mean, in the square of the values' unit
    dof: float  # degrees of freedom behind it
    effective: float  # how many independent blocks the blocks are worth


def plausible(value: float | None) -> bool:
    """Whether a number can be a time in ms: known, not negative, finite."""
    return value is not None and (value == 0 or _LEAST_MS <= value < _MOST_MS)


def precision(blocks: Sequence[float] | Floats, steps_per_block: int) -> Precision | None:
    """Return how well the mean of autocorrelated values is known.

    The larger of two estimates of the long-run variance. The equal-weighted cosine estimate (Lazarus,
    Lewis, Stock and Watson 2018) is right for any correlation that is short against the run. Where the
    correlation is as long as the run it is too small; there the variance of a first-order autoregression
    holds, whose coefficient is corrected for its bias in short series (Marriott and Pope 1954). A run so
    short that each step is a block may be no longer than its correlation: there the coefficient is taken
    a standard error higher.

    Args:
        blocks: Means of consecutive steps, in order.
        steps_per_block: How many steps each is the mean of.

    Returns:
        ``None`` when there are fewer than six blocks, or one of them is no time.
    """
    values = np.asarray(blocks, dtype=np.float64)
    n = len(values)
    if n < LEAST_BLOCKS or not all(map(plausible, blocks)):
        return None
    centred = values - values.mean()
    spread = float(centred @ centred) / (n - 1)
    if spread == 0:
        return Precision(0.0, float(n - 1), float(n))
    cosines = min(_MOST_COSINES, n // _BLOCKS_PER_COSINE)
    regressed = _autoregressive_variance(centred, spread, steps_per_block)
    variance = max(_cosine_variance(centred, cosines), regressed)
    effective = min(float(n), spread / variance)
    return Precision(variance, float(min(cosines, max(1.0, effective - 1))), effective)


def _cosine_variance(centred: Floats, cosines: int) -> float:
    weights = _waves(len(centred), cosines) @ centred
    return float(weights @ weights) / cosines / len(centred)


@lru_cache(maxsize=128)
def _waves(n: int, cosines: int) -> Floats:
    middle = (np.arange(n) + 0.5) / n
    waves = np.cos(np.pi * np.arange(1, cosines + 1)[:, None] * middle)
    return np.asarray(np.sqrt(2 / n) * waves)


def _autoregressive_variance(centred: Floats, spread: float, steps_per_block: int) -> float:
    n = len(centred)
    found = float(centred[1:] @ centred[:-1]) / float(centred @ centred)
    likely = found + (1 + 3 * found) / n
    if steps_per_block == 1:
        likely += math.sqrt((1 - found**2) / n)
    likely = min(max(likely, 0.0), _MOST_CORRELATION)
    return spread / n * (1 + likely) / (1 - likely)
