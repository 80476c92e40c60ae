"""Bounded stores of whole records: the first, the most recent, and the slowest."""

from __future__ import annotations

import numpy as np

from traceml_ai.analyze.columns import EXT, N_EXT, Rows


def _empty(n: int) -> Rows:
    return np.empty((n, N_EXT), dtype=np.int64)


class Head:
    """The first records of a run, where warm-up is looked for."""

    def __init__(self, capacity: int) -> None:
        self._rows = _empty(capacity)
        self._used = 0

    def add(self, rows: Rows) -> None:
        """Keep what still fits."""
        part = rows[: len(self._rows) - self._used]
        self._rows[self._used : self._used + len(part)] = part
        self._used += len(part)

    def rows(self) -> Rows:
        """Return what was kept, oldest first."""
        return self._rows[: self._used]


class Ring:
    """The most recent records."""

    def __init__(self, capacity: int) -> None:
        self._rows = _empty(capacity)
        self._seen = 0

    def add(self, rows: Rows) -> None:
        """Keep the newest, overwriting the oldest."""
        capacity = len(self._rows)
        part = rows[-capacity:]
        at = (self._seen + len(rows) - len(part)) % capacity
        first = part[: capacity - at]
        self._rows[at : at + len(first)] = first
        self._rows[: len(part) - len(first)] = part[len(first) :]
        self._seen += len(rows)

    def rows(self) -> Rows:
        """Return what was kept, oldest first."""
        capacity = len(self._rows)
        if self._seen <= capacity:
            return self._rows[: self._seen]
        return np.roll(self._rows, -(self._seen % capacity), axis=0)


class Slowest:
    """The records with the longest turn of the loop."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._rows = _empty(0)

    def add(self, rows: Rows) -> None:
        """Keep a record if it is among the slowest so far."""
        loop = EXT["loop_ns"]
        if len(self._rows) == self._capacity:
            rows = rows[rows[:, loop] > self._rows[-1, loop]]
            if len(rows) == 0:
                return
        merged = np.concatenate([self._rows, rows])
        # Ties go to the earlier step, so the result does not depend on how the blocks were cut.
        order = np.lexsort((merged[:, EXT["close_ns"]], -merged[:, loop]))
        self._rows = merged[order[: self._capacity]]

    def rows(self) -> Rows:
        """Return what was kept, slowest first."""
        return self._rows
