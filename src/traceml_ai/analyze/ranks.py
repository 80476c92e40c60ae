"""Several ranks side by side: the steps all of them made, and in each what was a rank's own work.

In a synchronous job a step takes as long on every rank, because the fast ones wait for the slow one in
a collective. What differs is how much of it was waiting. The time a rank stands at collectives is
measured (`traceml_ai.probe.comm`); the last to arrive stands there for the transfer only, so the
least over the ranks is the transfer and the rest is waiting. Where that is not measured, the whole
backward takes the place of it: it holds the waiting of a data-parallel job, and a rank that is itself
slow in backward can then not be told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from traceml_ai.analyze.aggregate import RankAggregate
from traceml_ai.analyze.breakdown import BETWEEN, Clock
from traceml_ai.analyze.columns import COMM_COLUMNS, EXT, USER_COLUMNS, Rows, column
from traceml_ai.analyze.steady import Steady
from traceml_ai.schema.step import COMM_PLACES, Observed

Floats = NDArray[np.float64]

PHASES: tuple[str, ...] = (
    "input_wait",
    "h2d",
    "forward",
    "backward",
    "optimizer",
    "residual",
    BETWEEN,
)

# A median needs some steps.
LEAST_STEPS = 10
# A rank with less than half the usual steps ended early, or has only begun: it is left out rather
# than the window cut down to it.
_LEAST_PART = 0.5
# Cells of ranks and steps that are looked at one by one: 64 ranks at 8,192 steps.
_MOST_CELLS = 1 << 19
# So much of the steps must have their waiting measured on every rank.
_MEASURED = 0.8
# How far the steps of two ranks are looked for beside one another, and how much better that must fit.
_SHIFTS, _FITS_BETTER = (-2, -1, 1, 2), 0.25


class RankPart(NamedTuple):
    """One rank."""

    aggregate: RankAggregate
    steady: Steady


class Lockstep(NamedTuple):
    """The common window of several ranks, in units of one step or of a bucket of steps."""

    ranks: list[int]  # positions of the compared ranks among the given ones
    left_out: list[int]  # positions of ranks that trained, but hardly in the common window
    own_ns: Floats  # (ranks, units, phases): a step's own work, without any collective
    wait_ns: Floats  # (ranks, units): standing at collectives until the last rank came
    transfer_ns: Floats  # (units,): standing there however early one comes
    steps: NDArray[np.int64]  # (units,)
    first_step: int
    last_step: int
    measured: bool  # waiting was measured, not taken to be the backward
    stood_by_phase_ns: dict[str, float]  # at collectives per step, mean over ranks; empty without `measured`

    @property
    def work_ns(self) -> Floats:
        """A step as long as it would be if no rank waited for another, shape (ranks, units)."""
        total: Floats = self.own_ns.sum(axis=2) + self.transfer_ns
        return total

    def mean(self, values: Floats) -> Floats:
        """Return the mean over the steps of the window; units are the last axis."""
        return np.asarray(np.average(values, axis=-1, weights=self.steps), dtype=np.float64)


class _Cut(NamedTuple):
    """One rank's part of the common window: columns per step, and the running number of each unit."""

    values: Floats  # (units, N_EXT)
    numbers: NDArray[np.int64]
    weights: NDArray[np.int64]


def align(parts: Sequence[RankPart], clock: Clock, *, recent: bool = False) -> Lockstep | None:
    """Lay ranks side by side; ``None`` when fewer than two of them can be compared.

    Args:
        parts: The ranks of one process group.
        clock: Whose durations to use.
        recent: Take the most recent steps one by one, however long the run; else a run too long for
            that is taken as a whole, in buckets.
    """
    chosen = _comparable(parts)
    if len(chosen) < 2:  # noqa: PLR2004 - a pair
        return None
    picked = [parts[i] for i in chosen]
    step_by_step = recent or all(part.aggregate.complete for part in picked)
    cuts = _steps(picked) if step_by_step else _buckets(picked)
    if int(cuts[0].weights.sum()) < LEAST_STEPS:
        return None
    measured = clock == "host" and all(_is_measured(part.aggregate) for part in picked)
    own = np.stack([_own(cut.values, clock, measured=measured) for cut in cuts])
    stood = np.stack([_stood(cut.values, clock, measured=measured) for cut in cuts])
    transfer = stood.min(axis=0)
    trained = [i for i, part in enumerate(parts) if part.steady.steps]
    return Lockstep(
        ranks=chosen,
        left_out=[i for i in trained if i not in set(chosen)],
        own_ns=own,
        wait_ns=stood - transfer,
        transfer_ns=transfer,
        steps=cuts[0].weights,
        first_step=int(cuts[0].numbers[0]),
        last_step=int(cuts[0].numbers[-1] + cuts[0].weights[-1] - 1),
        measured=measured,
        stood_by_phase_ns=_by_phase(cuts) if measured else {},
    )


def _by_phase(cuts: Sequence[_Cut]) -> dict[str, float]:
    """Return the mean time at collectives by the phase they were in."""
    means = np.mean(
        [
            np.average(cut.values[:, [EXT[name] for name in COMM_COLUMNS]], axis=0, weights=cut.weights)
            for cut in cuts
        ],
        axis=0,
    )
    return dict(zip(COMM_PLACES, means.tolist(), strict=True))


def _comparable(parts: Sequence[RankPart]) -> list[int]:
    counts = [part.steady.steps for part in parts]
    usual = float(np.median([count for count in counts if count] or [0]))
    least = max(LEAST_STEPS, _LEAST_PART * usual)
    return [i for i, count in enumerate(counts) if count >= least]


def _is_measured(aggregate: RankAggregate) -> bool:
    return aggregate.observed[Observed.COMM] >= _MEASURED * aggregate.count


def _steps(parts: Sequence[RankPart]) -> list[_Cut]:
    """Cut the steps that every rank has kept, the newest if they are too many."""
    kept = [part.steady.rows for part in parts]
    reference = kept[0]
    numbers = [column(rows, "step") + _shift(reference, rows) for rows in kept]
    common = numbers[0]
    for each in numbers[1:]:
        common = np.intersect1d(common, each, assume_unique=True)
    common = common[-(_MOST_CELLS // len(parts)) :]
    ones = np.ones(len(common), dtype=np.int64)
    return [
        _Cut(rows[np.isin(each, common)].astype(np.float64), common, ones)
        for rows, each in zip(kept, numbers, strict=True)
    ]


def _shift(reference: Rows, rows: Rows) -> int:
    """How far a rank's numbering is behind: a rank may have missed its first step.

    Ranks leave a collective together, so on one clock the moments when they do tell which steps belong
    together. Nothing is shifted without a clear sign.
    """
    if rows is reference or not _leaving(rows).any() or not _leaving(reference).any():
        return 0
    distances = {shift: _distance(reference, rows, shift) for shift in (0, *_SHIFTS)}
    best = min(distances, key=lambda shift: distances[shift])
    return best if distances[best] < _FITS_BETTER * distances[0] else 0


def _leaving(rows: Rows) -> NDArray[np.int64]:
    return np.where(column(rows, "comm_ns") > 0, column(rows, "arrival_ns") + column(rows, "comm_ns"), 0)


def _distance(reference: Rows, rows: Rows, shift: int) -> float:
    common, a, b = np.intersect1d(
        column(reference, "step"), column(rows, "step") + shift, assume_unique=True, return_indices=True
    )
    if len(common) < LEAST_STEPS:
        return float("inf")
    apart = np.abs(_leaving(reference[a]) - _leaving(rows[b]))
    return float(np.median(apart))


def _buckets(parts: Sequence[RankPart]) -> list[_Cut]:
    """Cut the whole run into buckets of equally many steps, without the one that holds the warm-up."""
    views = [part.aggregate.buckets() for part in parts]
    width = max(view.width for view in views)
    units = min(int(view.counts.sum()) // width for view in views)
    weights = np.full(units - 1, width, dtype=np.int64)
    numbers = np.arange(1, units, dtype=np.int64) * width
    cuts = []
    for view in views:
        per = width // view.width
        sums = view.sums[: units * per].reshape(units, per, -1).sum(axis=1)
        cuts.append(_Cut(sums[1:] / width, numbers, weights))
    return cuts


def _columns(values: Floats, names: Sequence[str]) -> Floats:
    total: Floats = values[:, [EXT[name] for name in names]].sum(axis=1)
    return total


def _own(values: Floats, clock: Clock, *, measured: bool) -> Floats:
    """Time per phase without what was stood at collectives, shape (units, phases)."""
    device = "dev_" if clock == "device" else ""
    columns = {phase: [f"{device}{phase}_ns"] for phase in PHASES[1:5]}
    columns["input_wait"] = ["input_wait_ns"]
    columns["residual"] = [f"{device}residual_ns", *(() if device else USER_COLUMNS)]
    columns[BETWEEN] = ["between_ns", "own_ns"]
    own = np.stack([_columns(values, columns[phase]) for phase in PHASES], axis=1)
    if not measured:
        own[:, PHASES.index("backward")] = 0.0
        return own
    for place, name in zip(COMM_PLACES, COMM_COLUMNS, strict=True):
        own[:, PHASES.index(place)] -= values[:, EXT[name]]
    return np.maximum(own, 0.0)


def _stood(values: Floats, clock: Clock, *, measured: bool) -> Floats:
    device = "dev_" if clock == "device" else ""
    return _columns(values, COMM_COLUMNS if measured else [f"{device}backward_ns"])
