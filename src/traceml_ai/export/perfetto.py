"""Kept steps as a trace: a track a rank, a slice a phase, for Perfetto and chrome://tracing.

Source of the format: "Trace Event Format", the document behind Chrome's tracing; Perfetto's viewer reads it
as "Chrome JSON". A record holds how long each phase took, not when it began, so phases are laid out in the
order of a step.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from traceml_ai.analyze.columns import EXT, USER_COLUMNS, Rows
from traceml_ai.errors import TraceMLError
from traceml_ai.export.steps import KeptSteps
from traceml_ai.report.html import check_lists
from traceml_ai.schema.step import BETWEEN_CAUSES, Flags
from traceml_ai.schema.summary import Summary

_STEPS_THREAD = 1
_BEFORE = ("own_ns", *(f"between_{cause}_ns" for cause in BETWEEN_CAUSES))
_WORDS = {"own_ns": "TraceML", "input_wait_ns": "input wait", "h2d_ns": "H2D"}

Event = dict[str, Any]


class _Slice(NamedTuple):
    name: str
    category: str
    begin_ns: int
    end_ns: int


def trace_of(steps: KeptSteps, summary: Summary) -> Iterator[Event]:
    """Yield the events of a trace: names first, then each rank's slices in order of time, then counters."""
    for rank in np.unique(steps.ranks).tolist():
        yield from _names(rank)
        for row in steps.rows[steps.ranks == rank]:
            yield from _step(row, rank, steps.user_phases)
    yield from _counters(summary, int(steps.ranks.min(initial=0)))


def _names(rank: int) -> Iterator[Event]:
    named = {"ph": "M", "pid": rank, "tid": _STEPS_THREAD}
    yield {**named, "name": "process_name", "args": {"name": f"rank {rank}"}}
    yield {**named, "name": "process_sort_index", "args": {"sort_index": rank}}
    yield {**named, "name": "thread_name", "args": {"name": "training thread"}}


def _step(row: Rows, rank: int, user_phases: dict[str, str]) -> Iterator[Event]:
    """Yield a step with its phases inside, and before it the time between steps."""
    begin = int(row[EXT["begin_ns"]])
    for piece in _pieces(row, begin, list(_BEFORE), "between", {}):
        yield _event(piece, rank)
        begin = piece.end_ns
    names = {column: user_phases[column] for column in USER_COLUMNS if column in user_phases}
    phases = list(_pieces(row, begin, _order(), "phase", names))
    end = int(row[EXT["close_ns"]])
    step = _Slice(f"step {int(row[EXT['step']]):,}", "step", begin, max(end, begin))
    yield {**_event(step, rank), "args": _arguments(row)}
    for piece in phases:
        yield _event(piece._replace(end_ns=min(piece.end_ns, step.end_ns)), rank)


def _order() -> list[str]:
    inside = ["input_wait_ns", "h2d_ns", "forward_ns", *USER_COLUMNS, "backward_ns", "optimizer_ns"]
    return [*inside, "residual_validation_ns", "residual_checkpoint_ns", "residual_other_ns"]


def _pieces(
    row: Rows, begin: int, columns: list[str], category: str, names: dict[str, str]
) -> Iterator[_Slice]:
    for column in columns:
        length = int(row[EXT[column]])
        if length > 0:
            yield _Slice(names.get(column) or _word(column), category, begin, begin + length)
            begin += length


def _word(column: str) -> str:
    return _WORDS.get(column, column.removesuffix("_ns").replace("_", " "))


def _event(piece: _Slice, rank: int) -> Event:
    return {
        "name": piece.name,
        "cat": piece.category,
        "ph": "X",
        "ts": piece.begin_ns / 1e3,  # microseconds, with the nanoseconds behind the point
        "dur": (piece.end_ns - piece.begin_ns) / 1e3,
        "pid": rank,
        "tid": _STEPS_THREAD,
    }


def _arguments(row: Rows) -> Event:
    counts = {name: int(row[EXT[name]]) for name in ("microbatches", "updates", "samples")}
    flags = Flags(int(row[EXT["flags"]]))
    return {
        **counts,
        "first of an epoch": Flags.FIRST_OF_EPOCH in flags,
        "update skipped": Flags.UPDATE_SKIPPED in flags,
    }


def _counters(summary: Summary, rank: int) -> Iterator[Event]:
    series = summary.process.series
    lines: dict[tuple[str, str], Sequence[float | None]] = {
        ("main process memory", "bytes"): series.main_rss_bytes,
        ("loader workers memory", "bytes"): series.workers_pss_bytes,
        ("processors busy", "main process"): series.main_cpu_cores,
    }
    for (name, of), values in lines.items():
        for at, value in zip(series.at_s, values, strict=True):
            if value is not None:
                yield {"name": name, "ph": "C", "ts": at * 1e6, "pid": rank, "args": {of: value}}


def write_perfetto(steps: KeptSteps, summary: Summary, path: Path) -> None:
    """Write a trace as JSON, compressed when the path ends with ``.gz``; Perfetto opens both.

    Raises:
        TraceMLError: It can't be written.
    """
    check_lists(summary)
    document = {
        "displayTimeUnit": "ms",
        "otherData": {"run": summary.run.name, "traceml_version": summary.traceml_version},
        "traceEvents": list(trace_of(steps, summary)),
    }
    try:
        data = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        raise TraceMLError("the run's summary is damaged: a figure in it is beyond all numbers") from None
    try:
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    except OSError as error:
        raise TraceMLError(f"can't write {path} ({error.strerror})") from None
