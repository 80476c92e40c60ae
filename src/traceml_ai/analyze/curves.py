"""Step time over the run: the series for drawing, and the blocks for comparing two runs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from traceml_ai.analyze.aggregate import RankAggregate
from traceml_ai.analyze.breakdown import BETWEEN, Breakdown
from traceml_ai.analyze.buckets import BucketView
from traceml_ai.analyze.columns import EXT
from traceml_ai.schema.step import WINDOW_PHASES

MAX_POINTS = 120
MAX_BLOCKS = 48

_BLOCK_COLUMNS = {
    "step": "step_ns",
    "input_wait": "input_wait_ns",
    **{phase: f"{phase}_ns" for phase in WINDOW_PHASES},
    "residual": "residual_ns",
    BETWEEN: "between_ns",
}


class SeriesPoints(NamedTuple):
    """Consecutive groups of steps covering the whole run."""

    first_step: list[int]
    steps: list[int]
    mean_ns: list[float]
    max_ns: list[float]


class BlockMeans(NamedTuple):
    """Means of consecutive groups of steady steps."""

    steps_per_block: int
    phases: dict[str, NDArray[np.float64]]


def series(aggregate: RankAggregate) -> SeriesPoints:
    """Return step time over the whole run in at most ``MAX_POINTS`` points."""
    view = aggregate.buckets()
    starts = _group_starts(len(view.counts), MAX_POINTS)
    if len(starts) == 0:
        return SeriesPoints([], [], [], [])
    step = EXT["step_ns"]
    counts = np.add.reduceat(view.counts, starts)
    means = np.add.reduceat(view.sums[:, step], starts) / counts
    return SeriesPoints(
        [int(start) * view.width for start in starts],
        counts.tolist(),
        means.tolist(),
        np.maximum.reduceat(view.maxima[:, step], starts).astype(float).tolist(),
    )


def blocks(aggregate: RankAggregate, warmup: int, breakdown: Breakdown | None) -> BlockMeans:
    """Return block means of the steady steps, of the phases that were observed."""
    view = aggregate.buckets()
    skip = -(-warmup // view.width)  # the bucket that holds the last warm-up step goes too
    whole = view.counts[skip:] == view.width
    view = BucketView(view.width, *(part[skip:][whole] for part in view[1:]))
    if breakdown is None or len(view.counts) == 0:
        return BlockMeans(0, {})
    size = -(-len(view.counts) // MAX_BLOCKS)
    used = len(view.counts) // size * size
    steps = size * view.width
    return BlockMeans(
        steps,
        {
            name: view.sums[:used, EXT[column]].reshape(-1, size).sum(axis=1) / steps
            for name, column in _BLOCK_COLUMNS.items()
            if name == "step" or breakdown.phases[name].coverage > 0
        },
    )


def _group_starts(n: int, most: int) -> NDArray[np.int64]:
    size = -(-n // most) if n else 1
    return np.arange(0, n, size, dtype=np.int64)
