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


class Mark(NamedTuple):
    """How far a rank was at one look."""

    t_ns: int
    steps: int
    sums: NDArray[np.int64]
    observed: dict[Observed, int]


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
        if self._marks and self._marks[-1].steps > aggregate.count:  # marked steps began to count
            self._marks.clear()
        now = Mark(t_ns, aggregate.count, aggregate.sums.copy(), dict(aggregate.observed))
        self._marks.append(now)
        while len(self._marks) > 2 and self._is_spare(now):  # noqa: PLR2004 -- a window has two ends
            self._marks.popleft()
        return _between(self._marks[0], now)

    def _is_spare(self, now: Mark) -> bool:
        second = self._marks[1]
        return second.t_ns <= now.t_ns - WINDOW_S * 1e9 and second.steps < now.steps


def _between(begin: Mark, end: Mark) -> Window:
    steps, seconds = end.steps - begin.steps, (end.t_ns - begin.t_ns) / 1e9
    if steps <= 0:
        return Window(0, seconds)
    sums = (end.sums - begin.sums) / steps / 1e6
    seen = {bit: end.observed[bit] > begin.observed[bit] for bit in _BITS.values()}
    phases: dict[str, float | None] = {
        name: float(sums[EXT[f"{name}_ns"]]) if seen[bit] else None for name, bit in _BITS.items()
    }
    phases["residual"] = float(sums[EXT["residual_ns"]])
    samples = int(end.sums[EXT["samples"]] - begin.sums[EXT["samples"]])
    return Window(
        steps,
        seconds,
        float(sums[EXT["step_ns"]]),
        phases,
        float(sums[EXT["between_ns"]]),
        samples if end.observed[Observed.SAMPLES] > begin.observed[Observed.SAMPLES] else None,
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
