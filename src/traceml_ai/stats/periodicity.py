"""Whether events come at regular distances."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MIN_EVENTS = 4  # three distances: fewer agree by chance too easily
MAX_MISSED = 3  # an event may be missed, so two or three periods in a row also count
_TOLERANCE = 0.1  # of the period; distances by step are usually exact, by time they jitter
_SHARE_REGULAR = 0.8  # of the distances


class Period(NamedTuple):
    """Distance between events, and how many of the distances are a multiple of it."""

    length: float
    regular_share: float


def find_period(positions: NDArray[Any]) -> Period | None:
    """Return the period of ascending positions, ``None`` when they are few or irregular."""
    if len(positions) < MIN_EVENTS:
        return None
    distances = np.diff(positions).astype(np.float64)
    length = float(np.median(distances))
    if length <= 0:
        return None
    multiples = np.clip(np.round(distances / length), 1, MAX_MISSED)
    regular = np.abs(distances / multiples - length) <= np.maximum(_TOLERANCE * length, 0.5)
    share = float(regular.mean())
    return Period(length, share) if share >= _SHARE_REGULAR else None
