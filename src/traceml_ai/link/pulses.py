"""How far the processes of a node are, in a few numbers: for live views of jobs whose records come rarely.

Everything counts from the start of a process, so that a pulse that is lost, or comes twice, changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from traceml_ai.analyze.aggregate import RankAggregate, Running
from traceml_ai.analyze.columns import EXT, N_EXT
from traceml_ai.errors import TraceMLError
from traceml_ai.schema.step import WINDOW_PHASES, Observed

_PHASES = ("input_wait", *WINDOW_PHASES, "residual", "step", "between")
_COLUMNS = [*(EXT[f"{name}_ns"] for name in _PHASES), EXT["samples"]]
_BITS = [
    Observed.INPUT,
    Observed.H2D,
    Observed.FORWARD,
    Observed.BACKWARD,
    Observed.OPTIMIZER,
    Observed.SAMPLES,
]
_WIDTH = 1 + len(_BITS) + len(_COLUMNS)
_LARGEST = 1 << 61
_KIND = np.dtype("<i8")

Ints = NDArray[np.int64]


def encode_counts(running: Sequence[Running]) -> bytes:
    """Return steps, observations and sums of these processes as bytes."""
    rows = [[each.count, *(each.observed[bit] for bit in _BITS), *each.sums[_COLUMNS]] for each in running]
    return np.array(rows, dtype=_KIND).tobytes()


class Beat(NamedTuple):
    """How far one process is."""

    steps: int
    sums: Ints
    observed: Mapping[Observed, int]


def decode_counts(data: bytes, processes: int) -> list[Beat]:
    """Return what `encode_counts` wrote.

    Raises:
        TraceMLError: These are no such bytes, or numbers that can't be.
    """
    if len(data) != processes * _WIDTH * _KIND.itemsize:
        raise TraceMLError("a pulse has the wrong size")
    rows = np.frombuffer(data, dtype=_KIND).reshape(processes, _WIDTH).astype(np.int64)
    if (rows < 0).any() or (rows > _LARGEST).any() or (rows[:, 1 : 1 + len(_BITS)] > rows[:, :1]).any():
        raise TraceMLError("a pulse holds a number that can't be")
    sums = np.zeros((processes, N_EXT), dtype=np.int64)
    sums[:, _COLUMNS] = rows[:, 1 + len(_BITS) :]
    heads = rows[:, : 1 + len(_BITS)].tolist()
    return [
        Beat(count, each, dict(zip(_BITS, seen, strict=True)))
        for (count, *seen), each in zip(heads, sums, strict=True)
    ]


class Ahead:
    """A process as its last pulse has it, which is ahead of its records; for the rest, as these have it.

    Args:
        aggregate: What is known of its records.
        beat: Of its last pulse.
    """

    def __init__(self, aggregate: RankAggregate, beat: Beat) -> None:
        self._aggregate = aggregate
        self.count, self.sums, self.observed = beat

    def step_curve(self) -> tuple[Ints, Ints, Ints, int]:
        """Return counts, sums and maxima of step time of each bucket, and steps in a full one."""
        return self._aggregate.step_curve()

    def last_bucket_peak(self, index: int) -> int:
        """Return the largest value of a column in the newest bucket; 0: there is none."""
        return self._aggregate.last_bucket_peak(index)
