"""Step time over the run: the series for drawing, and the blocks for comparing two runs."""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from traceml_ai.analyze.aggregate import RankAggregate
from traceml_ai.analyze.breakdown import BETWEEN, Breakdown, columns_of, user_columns
from traceml_ai.analyze.buckets import BucketView
from traceml_ai.analyze.columns import EXT
from traceml_ai.analyze.steady import Steady
from traceml_ai.schema.step import WINDOW_PHASES
from traceml_ai.stats import loghist

MAX_POINTS = 120
MAX_BLOCKS = 48
MAX_BINS = 48

_HOST_COLUMNS = {
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
    phases_ns: dict[str, list[float]]  # means over all steps of the point
    peak_allocated_bytes: list[int]
    peak_reserved_bytes: list[int]


class BlockMeans(NamedTuple):
    """Means of consecutive groups of steady steps."""

    steps_per_block: int
    phases: dict[str, NDArray[np.float64]]


def series(aggregate: RankAggregate, breakdown: Breakdown | None) -> SeriesPoints:
    """Return step time over the whole run in at most ``MAX_POINTS`` points, on the host clock.

    Args:
        aggregate: The rank.
        breakdown: Tells which phases were observed; ``None``: none.
    """
    view = aggregate.buckets()
    starts = _group_starts(len(view.counts), MAX_POINTS)
    if len(starts) == 0:
        return SeriesPoints([], [], [], [], {}, [], [])
    counts = np.add.reduceat(view.counts, starts)

    def means(column: str) -> list[float]:
        grouped = np.add.reduceat(view.sums[:, EXT[column]], starts) / counts
        return cast("list[float]", grouped.tolist())

    def peaks(column: str) -> list[int]:
        return cast("list[int]", np.maximum.reduceat(view.maxima[:, EXT[column]], starts).tolist())

    return SeriesPoints(
        [int(start) * view.width for start in starts],
        counts.tolist(),
        means("step_ns"),
        [float(peak) for peak in peaks("step_ns")],
        {name: means(column) for name, column in _drawn_columns(breakdown).items()},
        peaks("peak_allocated_bytes"),
        peaks("peak_reserved_bytes"),
    )


def _drawn_columns(breakdown: Breakdown | None) -> dict[str, str]:
    """Return the observed phases' columns on the host clock, the user's among them."""
    if breakdown is None:
        return {}
    columns = {**_HOST_COLUMNS, **user_columns(breakdown)}
    return {name: columns[name] for name, figures in breakdown.phases.items() if figures.coverage > 0}


def blocks(aggregate: RankAggregate, warmup: int, breakdown: Breakdown | None) -> BlockMeans:
    """Return block means of the steady steps and of the phases observed, on the clock of the breakdown."""
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
            for name, column in _compared_columns(breakdown).items()
            if name == "step" or breakdown.phases[name].coverage > 0
        },
    )


def histograms(steady: Steady, breakdown: Breakdown | None) -> dict[str, tuple[list[float], list[int]]]:
    """Return edges (ns) and counts of step time and each observed phase, on the breakdown's clock."""
    if breakdown is None:
        return {}
    step = "step_ns" if breakdown.clock == "host" else "dev_total_ns"
    columns = {"step": step, **columns_of(breakdown.clock, user_columns(breakdown))}
    drawn = {
        name: loghist.coarse(steady.histograms[column], MAX_BINS)
        for name, column in columns.items()
        if column in steady.histograms
    }
    return {name: (edges, counts) for name, (edges, counts) in drawn.items() if counts}


def _compared_columns(breakdown: Breakdown) -> dict[str, str]:
    step = "step_ns" if breakdown.clock == "host" else "dev_total_ns"
    return {"step": step, **columns_of(breakdown.clock, user_columns(breakdown))}


def _group_starts(n: int, most: int) -> NDArray[np.int64]:
    size = -(-n // most) if n else 1
    return np.arange(0, n, size, dtype=np.int64)
