"""Location and scale that a few odd values do not move."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# A normal distribution's standard deviation over its median absolute deviation.
_SIGMA_PER_MAD = 1.4826


def median(values: NDArray[Any]) -> float:
    """Return the median; NaN of nothing."""
    return float(np.median(values)) if len(values) else float("nan")


def sigma(values: NDArray[Any]) -> float:
    """Return the spread as the median absolute deviation scaled to a standard deviation."""
    return _SIGMA_PER_MAD * median(np.abs(values - median(values)))


def quantile(values: NDArray[Any], q: float) -> float | None:
    """Return a quantile, linearly interpolated; ``None`` of nothing."""
    return float(np.quantile(values, q)) if len(values) else None


def block_medians(values: NDArray[Any], blocks: int) -> Floats:
    """Return medians of ``blocks`` consecutive, nearly equal parts (fewer when values are few).

    Neighbouring steps are alike, so a block, not a step, is one observation.
    """
    parts = np.array_split(values, min(blocks, len(values))) if len(values) else []
    return np.array([np.median(part) for part in parts], dtype=np.float64)


def superiority(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Return the probability that a value of ``second`` exceeds one of ``first``, ties counted half.

    The effect size of the Mann-Whitney test (Vargha and Delaney 2000).
    """
    ordered = np.sort(first)
    below = np.searchsorted(ordered, second, side="left")
    up_to = np.searchsorted(ordered, second, side="right")
    return float((below + up_to).sum() / (2 * len(first) * len(second)))


def bootstrap_mean_interval(
    blocks: Floats, *, resamples: int = 400, level: float = 0.9
) -> tuple[float, float]:
    """Return a percentile interval of the mean, resampling blocks (Künsch 1989), always the same way.

    Args:
        blocks: Block means of an autocorrelated series, at least one.
        resamples: How many times to resample.
        level: Probability that the interval is meant to cover.
    """
    rng = np.random.default_rng(0)  # the same run must give the same summary
    picks = rng.integers(0, len(blocks), size=(resamples, len(blocks)))
    means = blocks[picks].mean(axis=1)
    tail = (1 - level) / 2
    return float(np.quantile(means, tail)), float(np.quantile(means, 1 - tail))
