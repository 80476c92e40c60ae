"""Whether the step became slower at some point and stayed so, and which phase grew."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from traceml_ai.analyze.aggregate import RankAggregate
from traceml_ai.analyze.columns import COMM_COLUMNS, EXT, USER_COLUMNS
from traceml_ai.analyze.steady import Steady
from traceml_ai.schema.step import COMM_PLACES, WINDOW_PHASES
from traceml_ai.stats import changepoint, robust

MIN_STEPS = 40  # twenty on either side
_MIN_SIDE_PART = 0.1
_BLOCKS = 12  # each side is looked at in so many blocks
_LATE_PARTS = 3

_PHASES: dict[str, str] = {
    "input_wait": "input_wait_ns",
    **{phase: f"{phase}_ns" for phase in WINDOW_PHASES},
    "residual": "residual_ns",
    **{name: name for name in USER_COLUMNS},
}

COLLECTIVES = "collectives"
"""What a rank stands at collectives, taken out of the phases it stood there in: it is other ranks' time."""
_WAITS = frozenset({"input_wait", COLLECTIVES})  # they shrink when a step grows


class Drift(NamedTuple):
    """Two levels of the step time, before and after the point that separates them best."""

    from_step: int
    steps_after: int
    before_ns: float  # medians
    after_ns: float
    lowest_late_ns: float  # smallest median of the thirds after the change
    superiority: float  # probability that a block after is slower than one before
    share_superiority: float  # that the phase's share of the step is larger: a busy machine slows all phases
    phase: str  # the one that grew most
    phase_growth_ns: float  # medians where records are complete, means of buckets else
    phase_before_ns: float
    other_growth_ns: float  # of the other phases inside the step together: waits shrink when a step grows
    other_before_ns: float


class _Points(NamedTuple):
    """One observation per step, or per bucket of steps in a long run."""

    step_ns: NDArray[np.float64]
    phases: dict[str, NDArray[np.float64]]
    first: NDArray[np.int64]  # index of each point's first step


def find_drift(aggregate: RankAggregate, steady: Steady) -> Drift | None:
    """Split the steady run where its level changes most; ``None`` when it is too short."""
    if steady.steps < MIN_STEPS:
        return None
    points = _from_rows(steady) if steady.complete else _from_buckets(aggregate, steady.warmup)
    n = len(points.step_ns)
    at = changepoint.split(points.step_ns, max(_side(steady, n), int(n * _MIN_SIDE_PART)))
    return None if at is None else _describe(points, at, steady)


def _side(steady: Steady, points: int) -> int:
    return max(1, -(-MIN_STEPS * points // (2 * steady.steps)))


def _describe(points: _Points, at: int, steady: Steady) -> Drift:
    before, after = points.step_ns[:at], points.step_ns[at:]
    level = {
        name: (robust.median(values[:at]), robust.median(values[at:]))
        for name, values in points.phases.items()
    }
    growth = {name: later - earlier for name, (earlier, later) in level.items()}
    phase = max(growth, key=lambda name: growth[name])
    others = [name for name in growth if name != phase and name not in _WAITS]
    before_ns = robust.median(before)
    after_ns = robust.median(after)
    end = int(points.first[0]) + steady.steps
    return Drift(
        from_step=int(points.first[at]),
        steps_after=end - int(points.first[at]),
        before_ns=before_ns,
        after_ns=after_ns,
        lowest_late_ns=float(robust.block_medians(after, _LATE_PARTS).min()),
        superiority=_superiority(points.step_ns, at),
        share_superiority=_superiority(points.phases[phase] / np.maximum(points.step_ns, 1.0), at),
        phase=phase,
        phase_growth_ns=growth[phase],
        phase_before_ns=level[phase][0],
        other_growth_ns=sum(growth[name] for name in others),
        other_before_ns=sum(level[name][0] for name in others),
    )


def _superiority(values: NDArray[np.float64], at: int) -> float:
    return robust.superiority(
        robust.block_medians(values[:at], _BLOCKS), robust.block_medians(values[at:], _BLOCKS)
    )


def _from_rows(steady: Steady) -> _Points:
    rows = steady.rows.astype(np.float64)
    return _Points(
        rows[:, EXT["step_ns"]],
        _by_phase(rows),
        steady.rows[:, EXT["step"]],
    )


def _from_buckets(aggregate: RankAggregate, warmup: int) -> _Points:
    view = aggregate.buckets()
    first = np.arange(len(view.counts), dtype=np.int64) * view.width
    kept = first >= warmup
    means = view.sums[kept] / view.counts[kept, None]
    return _Points(
        view.median_step_ns()[kept],
        _by_phase(means),
        first[kept],
    )


def _by_phase(values: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    phases = {name: values[:, EXT[column]] for name, column in _PHASES.items()}
    stood = {place: values[:, EXT[name]] for place, name in zip(COMM_PLACES, COMM_COLUMNS, strict=True)}
    inside = {place: each for place, each in stood.items() if place in phases and each.any()}
    if inside:
        phases |= {place: phases[place] - each for place, each in inside.items()}
        phases[COLLECTIVES] = np.sum(list(inside.values()), axis=0)
    return phases
