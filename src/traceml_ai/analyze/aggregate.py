"""One rank's whole run in bounded memory, fed with blocks of step records as they come.

Nothing here depends on how the records were cut into blocks: one block of a million records and a
million blocks of one give the same aggregate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from traceml_ai.analyze.buckets import MAX_BUCKETS, Buckets, BucketView
from traceml_ai.analyze.columns import EXT, HISTOGRAMMED, N_EXT, Rows, column, extend, observed_mask
from traceml_ai.analyze.keepers import Head, Ring, Slowest
from traceml_ai.schema.step import INDEX, Flags, Observed
from traceml_ai.stats import loghist

HEAD_RECORDS = 512
RECENT_RECORDS = 8192
SLOWEST_RECORDS = 256


class Detail(NamedTuple):
    """How much of a rank is kept in full."""

    head: int = HEAD_RECORDS
    recent: int = RECENT_RECORDS
    slowest: int = SLOWEST_RECORDS
    buckets: int = MAX_BUCKETS


FULL = Detail()
BRIEF = Detail(head=32, recent=64, slowest=8, buckets=16)
"""For one of thousands of ranks: some 150 kB instead of 6 MB, enough to compare it with the others."""
LEAST = Detail(head=16, recent=32, slowest=4, buckets=8)
"""For one of very many thousands of ranks: some 100 kB, so that 8,192 of them fit into a gigabyte."""

Ints = NDArray[np.int64]


class Running(Protocol):
    """What a live view needs of a training process."""

    @property
    def count(self) -> int:
        """Steps."""

    @property
    def sums(self) -> Ints:
        """Sums over them, a value an extended column."""

    @property
    def observed(self) -> Mapping[Observed, int]:
        """In how many of them something was measured."""

    def step_curve(self) -> tuple[Ints, Ints, Ints, int]:
        """Return counts, sums and maxima of step time of each bucket, and steps in a full one."""

    def last_bucket_peak(self, index: int) -> int:
        """Return the largest value of a column in the newest bucket; 0: there is none."""


class RankAggregate:
    """Everything the analysis needs from one training process, whatever the number of steps.

    Args:
        detail: How much to keep.

    Example:
        >>> aggregate = RankAggregate()
        >>> aggregate.add(reader.read_new())  # doctest: +SKIP
    """

    def __init__(self, detail: Detail = FULL) -> None:
        self.detail = detail
        # Half the bins of a rank kept in brief are its size; two thousand million steps are enough for it.
        self._counts = np.int64 if detail == FULL else np.int32
        self.marked = False
        self.excluded = 0  # inferred steps beside marked ones: the user's marks win
        self.tails = 0
        self.tail_sums: Ints = np.zeros(N_EXT, dtype=np.int64)
        self._start_over()

    def _start_over(self) -> None:
        self.count = 0
        self.first_begin_ns: int | None = None
        self.last_close_ns: int | None = None
        self.sums: Ints = np.zeros(N_EXT, dtype=np.int64)
        self.epoch_starts = 0
        self.epoch_start_sums: Ints = np.zeros(N_EXT, dtype=np.int64)
        self.histograms: dict[str, NDArray[Any]] = {}
        self.observed: dict[Observed, int] = dict.fromkeys(Observed, 0)
        self.flags: dict[Flags, int] = dict.fromkeys(Flags, 0)
        self._head = Head(self.detail.head)
        self._recent = Ring(self.detail.recent)
        self._slowest = Slowest(self.detail.slowest)
        self._buckets = Buckets(self.detail.buckets)

    def add(self, block: NDArray[Any]) -> None:
        """Take in records, shape ``(n, 48)``, that follow the ones before."""
        tail = (block[:, INDEX["flags"]] & int(Flags.TAIL)) != 0
        if tail.any():
            self._add_tails(block[tail])
            block = block[~tail]
        block = self._without_excluded(block)
        if len(block):
            self._add_steps(extend(block, self.last_close_ns))

    def _add_tails(self, block: NDArray[Any]) -> None:
        # Without a gap: where a tail begins is where its own columns say.
        self.tails += len(block)
        self.tail_sums += extend(block, None).sum(axis=0)

    def _without_excluded(self, block: NDArray[Any]) -> NDArray[Any]:
        marked = (block[:, INDEX["flags"]] & int(Flags.MARKED)) != 0
        if not self.marked:
            if not marked.any():
                return block
            self.marked = True
            self.excluded += self.count
            self._start_over()
        self.excluded += int((~marked).sum())
        kept: NDArray[Any] = block[marked]
        return kept

    def _add_steps(self, rows: Rows) -> None:
        if self.first_begin_ns is None:
            self.first_begin_ns = int(rows[0, EXT["begin_ns"]])
        self.last_close_ns = int(rows[-1, EXT["close_ns"]])
        self.count += len(rows)
        self.sums += rows.sum(axis=0)
        self._count_bits(rows)
        self._count_durations(rows)
        first = rows[(column(rows, "flags") & int(Flags.FIRST_OF_EPOCH)) != 0]
        self.epoch_starts += len(first)
        self.epoch_start_sums += first.sum(axis=0)
        for part in (self._head, self._recent, self._slowest, self._buckets):
            part.add(rows)

    def _count_bits(self, rows: Rows) -> None:
        observed, flags = column(rows, "observed"), column(rows, "flags")
        for bit in Observed:
            self.observed[bit] += int(np.count_nonzero(observed & int(bit)))
        for flag in Flags:
            self.flags[flag] += int(np.count_nonzero(flags & int(flag)))

    def _count_durations(self, rows: Rows) -> None:
        for name in HISTOGRAMMED:
            values = column(rows, name)[observed_mask(rows, name)]
            if len(values) == 0:
                continue
            counted = loghist.count(values).astype(self._counts, copy=False)
            known = self.histograms.get(name)
            self.histograms[name] = counted if known is None else known + counted

    @property
    def complete(self) -> bool:
        """Whether every step is still kept in full."""
        return self.count <= self.detail.recent

    def head(self) -> Rows:
        """Return the first records, extended columns, at most ``detail.head``."""
        return self._head.rows()

    def recent(self) -> Rows:
        """Return the most recent records, oldest first, at most ``detail.recent``."""
        return self._recent.rows()

    def slowest(self) -> Rows:
        """Return the records with the longest turn of the loop, slowest first."""
        return self._slowest.rows()

    def buckets(self) -> BucketView:
        """Return the whole run in time buckets."""
        return self._buckets.view()

    def step_curve(self) -> tuple[Ints, Ints, Ints, int]:
        """Return counts, sums and maxima of step time of each bucket, and steps in a full one."""
        return self._buckets.step_curve()

    def last_bucket_peak(self, index: int) -> int:
        """Return the largest value of a column in the newest bucket; 0: there is none."""
        return self._buckets.last_peak(index)
