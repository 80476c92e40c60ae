"""The last seconds of a run, from the difference of whole-run sums: a few additions a rank and look."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from traceml_ai.analyze.aggregate import Running
from traceml_ai.analyze.columns import EXT
from traceml_ai.live.snapshot import Curve
from traceml_ai.schema.step import WINDOW_PHASES, Observed

WINDOW_S = 5.0
MAX_POINTS = 240

_BITS = {
    "input_wait": Observed.INPUT,
    "h2d": Observed.H2D,
    "forward": Observed.FORWARD,
    "backward": Observed.BACKWARD,
    "optimizer": Observed.OPTIMIZER,
}


_SEEN = (*_BITS.values(), Observed.SAMPLES)
_NAMES = (*_BITS, "residual", "step", "between")
_SHOWN = [*(EXT[f"{name}_ns"] for name in _NAMES), EXT["samples"]]
_T_NS, _STEPS, _FIRST_SUM = 0, 1, 2 + len(_SEEN)

# How far a rank was at one look: when, steps, in how many each of `_SEEN` was, sums of `_SHOWN`. One array
# each, as there are a hundred thousand of them in a view of a very large job.
Mark = NDArray[np.int64]


def _mark(running: Running, t_ns: int) -> Mark:
    mark = np.empty(_FIRST_SUM + len(_SHOWN), dtype=np.int64)
    mark[:_FIRST_SUM] = (t_ns, running.count, *(running.observed[bit] for bit in _SEEN))
    mark[_FIRST_SUM:] = running.sums[_SHOWN]
    return mark


class Window(NamedTuple):
    """What happened between two looks; all ``None`` when no step closed."""

    steps: int
    seconds: float
    step_ms: float | None = None
    phases_ms: Mapping[str, float | None] = MappingProxyType({})
    between_ms: float | None = None
    samples: int | None = None


class Recent:
    """One rank's marks of the last seconds."""

    def __init__(self) -> None:
        self._marks: deque[Mark] = deque()

    def look(self, aggregate: Running, t_ns: int) -> Window:
        """Return what happened since the oldest mark of the window.

        A rank whose steps are longer than the window has its last step in it all the same.
        """
        if self._marks and self._marks[-1][_STEPS] > aggregate.count:  # marked steps began to count
            self._marks.clear()
        now = _mark(aggregate, t_ns)
        self._marks.append(now)
        while len(self._marks) > 2 and self._is_spare(now):  # noqa: PLR2004 -- a window has two ends
            self._marks.popleft()
        return _between(self._marks[0], now)

    def _is_spare(self, now: Mark) -> bool:
        second = self._marks[1]
        return bool(second[_T_NS] <= now[_T_NS] - WINDOW_S * 1e9 and second[_STEPS] < now[_STEPS])


def _between(begin: Mark, end: Mark) -> Window:
    passed_ns, steps, *rest = (end - begin).tolist()
    seconds = passed_ns / 1e9
    if steps <= 0:
        return Window(0, seconds)
    seen, sums, samples = rest[: len(_SEEN)], rest[len(_SEEN) : -1], rest[-1]
    *each, residual, step, between = [total / steps / 1e6 for total in sums]
    phases: dict[str, float | None] = {
        name: ms if count else None for name, count, ms in zip(_BITS, seen, each, strict=False)
    }
    phases["residual"] = residual
    return Window(
        steps,
        seconds,
        step,
        phases,
        between,
        samples if seen[-1] else None,
    )


def curve_of(aggregate: Running) -> Curve:
    """Return step time over the whole run."""
    counts, sums, maxima, width = aggregate.step_curve()
    size = -(-len(counts) // MAX_POINTS) or 1
    starts = np.arange(0, len(counts), size)
    if len(starts) == 0:
        return Curve()
    means = np.add.reduceat(sums, starts) / np.add.reduceat(counts, starts) / 1e6
    return Curve(
        first_step=[int(start) * width for start in starts],
        mean_ms=[round(float(value), 4) for value in means],
        max_ms=[round(float(value), 4) for value in np.maximum.reduceat(maxima, starts) / 1e6],
    )


assert set(_BITS) == {"input_wait", *WINDOW_PHASES}
