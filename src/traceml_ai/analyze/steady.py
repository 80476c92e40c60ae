"""The steady part of a run: everything after warm-up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from traceml_ai.analyze.aggregate import RankAggregate
from traceml_ai.analyze.columns import EXT, HISTOGRAMMED, Rows, column, observed_mask
from traceml_ai.analyze.warmup import warmup_steps
from traceml_ai.schema.step import Flags
from traceml_ai.stats import loghist, robust

Ints = NDArray[np.int64]


class Steady(NamedTuple):
    """Sums, counts and records of the steady steps of one rank, or of several pooled."""

    warmup: int
    warmup_ns: int  # wall time of the warm-up steps
    steps: int
    sums: Ints
    counts: dict[str, int]  # steps that measured a column, for the histogrammed ones
    histograms: dict[str, Ints]
    rows: Rows  # the most recent steady records, oldest first; all of them when `complete`
    complete: bool
    epoch_starts: int
    epoch_start_sums: Ints

    def total_ns(self, name: str) -> int:
        """Return a column's sum."""
        return int(self.sums[EXT[name]])

    def mean_ns(self, name: str) -> float | None:
        """Return a column's mean over the steps that measured it."""
        seen = self.counts.get(name, 0)
        return self.total_ns(name) / seen if seen else None

    def quantile_ns(self, name: str, q: float) -> float | None:
        """Return a column's quantile over the steps that measured it."""
        if self.complete:
            return robust.quantile(column(self.rows, name)[observed_mask(self.rows, name)], q)
        return loghist.quantile(self.histograms[name], q) if self.counts.get(name) else None

    def coverage(self, name: str) -> float | None:
        """Return the fraction of the steps that measured a column."""
        return self.counts.get(name, 0) / self.steps if self.steps else None


def steady_part(aggregate: RankAggregate) -> Steady:
    """Leave the warm-up out of an aggregate; it always lies within the records kept in full."""
    head = aggregate.head()
    warmup = warmup_steps(head, aggregate.count)
    warm = head[:warmup]
    histograms = _without(aggregate.histograms, warm)
    first = warm[(column(warm, "flags") & int(Flags.FIRST_OF_EPOCH)) != 0]
    recent = aggregate.recent()
    return Steady(
        warmup=warmup,
        warmup_ns=int(column(warm, "loop_ns").sum()),
        steps=aggregate.count - warmup,
        sums=aggregate.sums - warm.sum(axis=0),
        counts={name: int(counted.sum()) for name, counted in histograms.items()},
        histograms=histograms,
        rows=recent[max(0, warmup - (aggregate.count - len(recent))) :],
        complete=aggregate.complete,
        epoch_starts=aggregate.epoch_starts - len(first),
        epoch_start_sums=aggregate.epoch_start_sums - first.sum(axis=0),
    )


def _without(histograms: dict[str, Ints], warm: Rows) -> dict[str, Ints]:
    """Take a few rows out of histograms, all columns at once: there are jobs of thousands of ranks."""
    if len(warm) == 0 or not histograms:
        return histograms
    bins = loghist.bins_of(warm[:, [EXT[name] for name in histograms]])
    left = {}
    for (name, counted), column_bins in zip(histograms.items(), bins.T, strict=True):
        left[name] = counted.copy()
        np.subtract.at(left[name], column_bins[observed_mask(warm, name)], 1)
    return left


def pooled(parts: Sequence[Steady]) -> Steady:
    """Return several ranks' steady steps as one population (at least one rank)."""
    if len(parts) == 1:
        return parts[0]
    names = [name for name in HISTOGRAMMED if any(name in part.histograms for part in parts)]
    none = np.zeros(loghist.BINS, dtype=np.int64)
    return Steady(
        warmup=parts[0].warmup,
        warmup_ns=parts[0].warmup_ns,
        steps=sum(part.steps for part in parts),
        sums=np.sum([part.sums for part in parts], axis=0),
        counts={name: sum(part.counts.get(name, 0) for part in parts) for name in names},
        histograms={name: np.sum([p.histograms.get(name, none) for p in parts], axis=0) for name in names},
        rows=np.concatenate([part.rows for part in parts]),
        complete=all(part.complete for part in parts),
        epoch_starts=sum(part.epoch_starts for part in parts),
        epoch_start_sums=np.sum([part.epoch_start_sums for part in parts], axis=0),
    )
