"""How many of the first steps are not steady state: compilation, autotuning, worker start."""

from __future__ import annotations

import numpy as np

from traceml_ai.analyze.columns import Rows, column
from traceml_ai.schema.step import Flags, Observed

# A step this much slower than the later ones is not one of them ...
_SLOW = 1.5
# ... unless later steps are often that slow too (workers that deliver in bursts).
_QUANTILE, _SLOW_QUANTILE = 0.9, 1.25
# So many ordinary steps in a row end the warm-up.
_SETTLED = 3
# Warm-up may take no more than this part of a run, nor this many steps.
_MAX_PART = 0.2
_MAX_STEPS = 256
_MIN_STEPS = 3  # below, there is nothing to compare the first step with


def warmup_steps(head: Rows, steps: int) -> int:
    """Return how many first steps to leave out of every average.

    Args:
        head: The run's first records with derived columns.
        steps: Steps of the run so far.
    """
    if steps < _MIN_STEPS:
        return 0
    most = min(max(1, int(steps * _MAX_PART)), _MAX_STEPS, len(head) - 1)
    step_ns = column(head, "step_ns")
    later = np.sort(step_ns[max(most, len(head) // 2) :])
    limit = max(_SLOW * _at(later, 0.5), _SLOW_QUANTILE * _at(later, _QUANTILE))
    compiled = (column(head, "flags") & int(Flags.COMPILED)) != 0
    return _first_settled((step_ns > limit) | compiled | _before_the_device_clock(head), most)


def _before_the_device_clock(head: Rows) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Mark the first step where the device is timed from the second on.

    It would put all the others on the host's clock.
    """
    timed = (column(head, "observed") & int(Observed.DEVICE)) != 0
    before = np.zeros(len(head), dtype=np.bool_)
    before[:1] = timed[1:2] & ~timed[:1]
    return before


def _at(ordered: Rows, q: float) -> float:
    """Return a quantile of sorted values; `numpy.quantile` takes ten times as long for few of them."""
    low, part = divmod(q * (len(ordered) - 1), 1)
    pair = ordered[int(low) : int(low) + 2]
    return float(pair[0] + part * (pair[-1] - pair[0]))


def _first_settled(slow: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], most: int) -> int:
    for start in range(most):
        if not slow[start : start + _SETTLED].any():
            return start
    return most
