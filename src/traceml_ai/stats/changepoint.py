"""Where a series changes its level."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def split(values: NDArray[Any], margin: int) -> int | None:
    """Return the index at which the second level begins: the split that Pettitt's statistic likes best.

    Rank-based (Pettitt 1979), so single stalls do not attract it. It always answers; whether the two
    sides really differ is for the caller to judge.

    Args:
        values: The series, in order.
        margin: The least number of values on either side.

    Returns:
        The index, or ``None`` when there are fewer than ``2 * margin`` values.
    """
    n = len(values)
    if margin < 1 or n < 2 * margin:
        return None
    # Centred mean ranks: their running sum is the statistic.
    cumulative = np.cumsum(_mean_ranks(values) - (n + 1) / 2)
    inner = np.abs(cumulative[margin - 1 : n - margin])
    return int(np.argmax(inner)) + margin


def _mean_ranks(values: NDArray[Any]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks = last - (counts - 1) / 2
    return np.asarray(ranks[inverse], dtype=np.float64)
