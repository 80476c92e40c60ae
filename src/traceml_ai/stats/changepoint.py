"""Where a series changes its level."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# What lies beyond is a stall, not a level: a level holds at least a tenth of the values.
_CLIP = (0.05, 0.95)


def split(values: NDArray[Any], margin: int) -> int | None:
    """Return the index at which the second level begins.

    The split with the largest difference of means in units of its standard error (the maximum of the
    weighted CUSUM, the likelihood-ratio statistic of one change; Hawkins 1977), over values whose tails
    are clipped so that single stalls do not attract it. It always answers; whether the two sides really
    differ is for the caller to judge.

    Args:
        values: The series, in order.
        margin: The least number of values on either side.

    Returns:
        The index, or ``None`` when there are fewer than ``2 * margin`` values.
    """
    n = len(values)
    if margin < 1 or n < 2 * margin:
        return None
    clipped = np.clip(values, *np.quantile(values, _CLIP))
    left = np.arange(margin, n - margin + 1)
    sums = np.cumsum(clipped - clipped.mean())[left - 1]
    return int(left[np.argmax(np.abs(sums) / np.sqrt(left * (n - left)))])
