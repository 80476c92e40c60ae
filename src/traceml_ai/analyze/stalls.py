"""Steps that take far longer than the others, what they have in common, and how regular they are."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from traceml_ai.analyze.columns import EXT, USER_COLUMNS, Rows, column
from traceml_ai.schema.step import WINDOW_PHASES, Flags
from traceml_ai.stats import robust
from traceml_ai.stats.periodicity import MIN_EVENTS, Period, find_period

# Longer than an ordinary step by half of it, by six times its spread and by a millisecond.
_EXCESS_PART, _EXCESS_SIGMAS, _EXCESS_NS = 0.5, 6.0, 1e6
# Only stalls of the size of the large ones count: small hiccups of the machine blur the period.
_LARGEST, _PART_OF_LARGEST = 5, 0.3
# A stall is of one kind with the others when half of it lies in the same place.
_ALIKE_PART = 0.5
# A quarter of all steps is not a stall any more but how the loop works.
_MOST_OF_STEPS = 0.25
# What lies behind a stall: half of its time in garbage collection, most of them starting an epoch.
_GC_PART, _EPOCH_PART = 0.5, 0.8

Where = Literal["phase", "gc", "epoch_start"]

_PLACES: dict[str, str] = {
    "input_wait": "input_wait_ns",
    **{phase: f"{phase}_ns" for phase in WINDOW_PHASES},
    "checkpoint": "residual_checkpoint_ns",
    "validation": "residual_validation_ns",
    "residual": "residual_other_ns",
    "between_steps": "between_other_ns",
    **{name: name for name in USER_COLUMNS},
}


class Stalls(NamedTuple):
    """Unusually long steps among the recent ones."""

    stalls: int
    steps: int  # steps that were looked at
    excess_ns: float  # of all stalls together, over an ordinary step
    mean_excess_ns: float
    ordinary_ns: float
    place: str  # the phase that most of the excess is in, or checkpoint, validation, between_steps
    place_part: float  # of the excess
    cause: Where
    every_steps: Period | None
    every_ns: Period | None
    first_step: int
    last_step: int
    each_excess_ns: NDArray[np.float64]


def find_stalls(rows: Rows) -> Stalls | None:
    """Look for stalls in steady records; time between steps with a known cause is not looked at."""
    if len(rows) == 0:
        return None
    turn = column(rows, "step_ns") + column(rows, "between_other_ns")
    ordinary = robust.median(turn)
    excess = turn.astype(np.float64) - ordinary
    least = max(_EXCESS_PART * ordinary, _EXCESS_SIGMAS * robust.sigma(turn), _EXCESS_NS)
    if not (excess > least).any():
        return None
    large = np.sort(excess)[-_LARGEST:]
    stalled = excess > max(least, _PART_OF_LARGEST * robust.median(large))
    found = int(stalled.sum())
    if found < MIN_EVENTS or found > _MOST_OF_STEPS * len(rows):
        return None
    return _describe(rows, stalled, excess, ordinary)


def _describe(rows: Rows, stalled: NDArray[np.bool_], excess: NDArray[np.float64], ordinary: float) -> Stalls:
    stalled = _alike(rows, stalled, excess)
    excess = excess[stalled]
    hit, rest = rows[stalled], rows[~stalled]
    place, in_place = _place(hit, rest)
    mean = float(excess.mean())
    return Stalls(
        stalls=len(hit),
        steps=len(rows),
        excess_ns=float(excess.sum()),
        mean_excess_ns=mean,
        ordinary_ns=ordinary,
        place=place,
        place_part=min(1.0, in_place / mean),
        cause=_cause(hit, mean, _starts_epoch(rows)[stalled]),
        every_steps=find_period(column(hit, "step")),
        every_ns=find_period(column(hit, "close_ns")),
        first_step=int(hit[0, EXT["step"]]),
        last_step=int(hit[-1, EXT["step"]]),
        each_excess_ns=excess,
    )


def _alike(rows: Rows, stalled: NDArray[np.bool_], excess: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Keep the stalls that lie where most of them do: the others are hiccups of a busy machine."""
    place, _ = _place(rows[stalled], rows[~stalled])
    name = _PLACES[place]
    in_place = column(rows, name) - robust.median(column(rows[~stalled], name))
    alike = stalled & (in_place >= _ALIKE_PART * excess)
    return alike if alike.sum() >= MIN_EVENTS else stalled


def _place(hit: Rows, rest: Rows) -> tuple[str, float]:
    grown = {
        place: float(column(hit, name).mean()) - robust.median(column(rest, name))
        for place, name in _PLACES.items()
    }
    place = max(grown, key=lambda name: grown[name])
    return place, grown[place]


def _starts_epoch(rows: Rows) -> NDArray[np.bool_]:
    """Tell the first steps of each epoch: workers that start also slow the step after the first batch."""
    first = (column(rows, "flags") & int(Flags.FIRST_OF_EPOCH)) != 0
    after = np.concatenate([[False], first[:-1]])
    return np.asarray(first | after)


def _cause(hit: Rows, mean_excess: float, starts_epoch: NDArray[np.bool_]) -> Where:
    if float(column(hit, "gc_ns").mean()) >= _GC_PART * mean_excess:
        return "gc"
    return "epoch_start" if float(starts_epoch.mean()) >= _EPOCH_PART else "phase"
