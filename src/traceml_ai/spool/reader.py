"""The step log's reader: follows a process's segments while they grow, or reads them afterwards.

Files are read, not mapped: a file cut short under a map would kill the collector. The segment that is
being read is kept open, so that it can be read to its end when somebody has removed it meanwhile.
Nothing a file says is believed before it was checked against the file's size.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import struct
import weakref
from pathlib import Path
from typing import Any, NamedTuple, cast, get_type_hints

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceml_ai.errors import TraceMLError
from traceml_ai.schema.facts import ProcessFacts
from traceml_ai.schema.step import (
    EXCLUSIVE_COLUMNS,
    INDEX,
    N_COLUMNS,
    RECORD_BYTES,
    Flags,
    Observed,
    decode_raw,
)
from traceml_ai.spool import layout

__all__ = ["Header", "LogReader", "open_spool"]

Records = NDArray[np.int64]
_SEGMENT_FILE = re.compile(r"steps-(\d+)-(\d{5,})\.tlog")
_MAX_FACTS_BYTES = 1 << 20
_MAX_CAPACITY = 1 << 24
_MAX_PAIR_NS = 100_000
_MOST = 1 << 48  # of what is counted: more, and the sums would overflow
BLOCK_RECORDS = 65_536
_EXCLUSIVE = [INDEX[name] for name in EXCLUSIVE_COLUMNS]
# A call that was timed took time, so the writer need not store that it was seen.
_SEEN_BY = {
    Observed.INPUT: "fetches",
    Observed.H2D: "h2d_ns",
    Observed.FORWARD: "forward_ns",
    Observed.BACKWARD: "backward_ns",
    Observed.OPTIMIZER: "optimizer_ns",
    Observed.SAMPLES: "samples",
    Observed.TOKENS: "tokens",
    Observed.MEMORY: "peak_allocated_bytes",
    Observed.COMM: "comm_ns",
}


class Header(NamedTuple):
    """The integers of one segment's header; see `traceml_ai.spool.layout`."""

    capacity: int
    segment: int
    first_step: int
    pid: int
    rank: int
    local_rank: int
    world_size: int
    origin_perf_ns: int
    origin_unix_ns: int
    records: int
    settled: int
    aborted: int
    dropped: int
    open_ns: int
    closed: bool
    next_segment: bool
    own_pair_ns: int


def _parse_header(raw: bytes, file_bytes: int, path: Path) -> Header:
    """Check and unpack a header.

    Raises:
        TraceMLError: This is no step log, of another version, or damaged.
    """
    if len(raw) < layout.HEADER_BYTES or not raw.startswith(layout.MAGIC):
        raise TraceMLError(f"{path}: not a TraceML step log (bad or short header)")

    def at(offset: int) -> int:
        return cast(int, struct.unpack_from("=q", raw, offset)[0])

    if at(layout.HEADER_SIZE) != layout.HEADER_BYTES or at(layout.RECORD_SIZE) != RECORD_BYTES:
        raise TraceMLError(f"{path}: step log of another TraceML version; read it with that one")
    capacity, count = at(layout.CAPACITY), at(layout.COUNT)
    room = (file_bytes - layout.HEADER_BYTES) // RECORD_BYTES
    if not (0 < capacity <= _MAX_CAPACITY and 0 <= count <= capacity):
        raise TraceMLError(f"{path}: damaged step log (capacity {capacity}, count {count})")
    numbers = (at(layout.SEGMENT), at(layout.FIRST_STEP), at(layout.PID), at(layout.RANK) + 1)
    if not all(0 <= number < _MOST for number in numbers):
        raise TraceMLError(f"{path}: damaged step log (segment, first step, process and rank {numbers})")
    return Header(
        capacity=capacity,
        segment=at(layout.SEGMENT),
        first_step=at(layout.FIRST_STEP),
        pid=at(layout.PID),
        rank=at(layout.RANK),
        local_rank=at(layout.LOCAL_RANK),
        world_size=at(layout.WORLD_SIZE),
        origin_perf_ns=at(layout.ORIGIN_PERF_NS),
        origin_unix_ns=at(layout.ORIGIN_UNIX_NS),
        # A file cut short keeps the records that are really there.
        records=max(0, min(count, room)),
        settled=at(layout.SETTLED),
        aborted=max(0, at(layout.ABORTED)),
        dropped=max(0, at(layout.DROPPED)),
        open_ns=at(layout.OPEN_NS),
        closed=bool(at(layout.CLOSED)),
        next_segment=bool(at(layout.NEXT_SEGMENT)),
        own_pair_ns=min(max(0, at(layout.OWN_PAIR_NS)), _MAX_PAIR_NS),
    )


class _Segment:
    """One segment's file, open until it is let go.

    Raises:
        TraceMLError: It can't be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("rb", buffering=0)
        except OSError as error:
            raise TraceMLError(f"{path}: can't be read ({error.strerror})") from error
        weakref.finalize(self, self._file.close)

    def header(self) -> Header:
        """Read the header as it is now."""
        try:
            raw = self._read(0, layout.HEADER_BYTES)
            return _parse_header(raw, os.fstat(self._file.fileno()).st_size, self.path)
        except OSError as error:
            raise TraceMLError(f"{self.path}: can't be read ({error.strerror})") from error

    def records(self, start: int, stop: int) -> Records:
        """Records ``start`` to ``stop``, as an array of shape ``(n, N_COLUMNS)``."""
        if stop <= start:
            return np.empty((0, N_COLUMNS), dtype=np.int64)
        raw = self._read(layout.HEADER_BYTES + start * RECORD_BYTES, (stop - start) * RECORD_BYTES)
        return _as_records(raw)

    def _read(self, start: int, size: int) -> bytes:
        self._file.seek(start)
        return self._file.read(size)


def _as_records(raw: bytes) -> Records:
    whole = len(raw) // RECORD_BYTES
    array = np.frombuffer(raw, dtype=np.int64, count=whole * N_COLUMNS)
    return array.astype(np.int64, copy=True).reshape(whole, N_COLUMNS)


def _decode_plain(block: Records) -> None:
    """Turn the time stamps of plain steps into durations, in place."""
    kinds = block[:, INDEX["flags"]] & int(Flags.RAW | Flags.TOLD)
    for kind in (Flags.RAW, Flags.RAW | Flags.TOLD):
        rows = np.flatnonzero(kinds == int(kind))
        if len(rows):
            for name, values in decode_raw(block[rows].T, told=Flags.TOLD in kind).items():
                block[rows, INDEX[name]] = values


def _complete(block: Records, first: int, own_pair_ns: int) -> None:
    """Add, in place, what follows from the stored columns and would cost time on the step path.

    The calibrated cost of the timed calls moves from the residual (then from the time between
    steps) to `own_ns`; `observed` gets a bit for each phase that took time; `begin_ns` is
    `close_ns` minus the exclusive columns.
    """
    _decode_plain(block)
    residual, between = INDEX["residual_other_ns"], INDEX["between_other_ns"]
    own = block[:, INDEX["boundaries"]] * own_pair_ns
    for column in (residual, between):
        taken = np.minimum(own, np.maximum(block[:, column], 0))
        block[:, column] -= taken
        block[:, INDEX["own_ns"]] += taken
        own = own - taken
    for bit, name in _SEEN_BY.items():
        block[:, INDEX["observed"]] |= np.where(block[:, INDEX[name]] > 0, int(bit), 0)
    block[:, INDEX["step"]] = np.arange(first, first + len(block))
    block[:, INDEX["global_step"]] -= 1
    spent = block[:, _EXCLUSIVE].sum(axis=1)
    block[:, INDEX["begin_ns"]] = block[:, INDEX["close_ns"]] - spent


class LogReader:
    """Reads the step log of one process, from the first record on, each record once.

    Args:
        folder: The spool folder.
        pid: The process that writes.
    """

    def __init__(self, folder: Path, pid: int) -> None:
        self._folder = folder
        self.pid = pid
        self._segment = self._first_segment()
        self._cursor = 0
        self._consumed: list[Path] = []
        self._facts = ProcessFacts()
        self._file = _Segment(self._path(self._segment))
        self.header = self._file.header()

    def _path(self, segment: int) -> Path:
        return self._folder / layout.segment_name(self.pid, segment)

    def _first_segment(self) -> int:
        numbers = self._numbers()
        if not numbers:
            raise TraceMLError(f"{self._folder}: no step log of process {self.pid}")
        return min(numbers)

    def _numbers(self) -> list[int]:
        """The segments that are there."""
        try:
            return [n for p, n in _segments(self._folder) if p == self.pid]
        except OSError:  # somebody removed the folder
            return []

    def _following(self) -> int | None:
        """The next segment that is there: the writer may have had to delete some."""
        if self._path(self._segment + 1).exists():
            return self._segment + 1
        return min((n for n in self._numbers() if n > self._segment), default=None)

    def read_new(self) -> Records:
        """Records that can no longer change and were not read before; shape ``(n, 48)``.

        At most some 65,000 records a call; call again until it returns none.
        """
        return self._read(final=False)

    def read_rest(self) -> Records:
        """Like `read_new`, with the newest record too: for a process that writes no more."""
        return self._read(final=True)

    def _read(self, *, final: bool) -> Records:
        blocks: list[Records] = []
        total = 0
        while total < BLOCK_RECORDS:
            header = self.header = self._file.header()
            block = self._file.records(self._cursor, _final_count(header, final=final))
            _complete(block, header.first_step + self._cursor, header.own_pair_ns)
            self._cursor += len(block)
            total += len(block)
            blocks.append(block)
            if not self._advance(header):
                break
        return np.concatenate(blocks)

    def _advance(self, header: Header) -> bool:
        """Step to the next segment when this one is read to its end."""
        done = header.next_segment and self._cursor >= header.records
        following = self._following() if done else None
        if following is None:
            return False
        opened = _Segment(self._path(following))
        self._consumed.append(self._path(self._segment))
        self._segment, self._file, self._cursor = following, opened, 0
        return True

    def facts(self) -> ProcessFacts:
        """What the process says of itself, or said last; empty while it has not, or the file is damaged."""
        self._facts = read_facts(self._folder, self.pid) or self._facts
        return self._facts

    def consumed_bytes(self) -> int:
        """Bytes of segments that were read to their end and still lie there."""
        return sum(path.stat().st_size for path in self._consumed if path.exists())

    def discard_consumed(self) -> None:
        """Delete the segments that were read to their end."""
        for path in self._consumed:
            with contextlib.suppress(FileNotFoundError):
                layout.discard(str(path))
        self._consumed.clear()


def _final_count(header: Header, *, final: bool) -> int:
    """How many records of a segment can no longer change."""
    if final:
        return header.records
    count = header.records if header.closed or header.next_segment else header.records - 1
    if header.settled >= 0:
        count = min(count, header.settled)
    return max(0, count)


def read_facts(folder: Path, pid: int) -> ProcessFacts:
    """Read ``facts-<pid>.json``; an absent or damaged file gives no facts."""
    try:
        with (folder / layout.facts_name(pid)).open("rb") as file:
            found = json.loads(file.read(_MAX_FACTS_BYTES))
    except (OSError, ValueError, RecursionError):
        return ProcessFacts()
    return clean_facts(found) if isinstance(found, dict) else ProcessFacts()


_FACT_TYPES = get_type_hints(ProcessFacts)


def clean_facts(found: dict[str, Any]) -> ProcessFacts:
    """Return the facts that are what they should be; a damaged one counts as not known."""
    clean: dict[str, Any] = {}
    for name, kind in _FACT_TYPES.items():
        if name in found:
            with contextlib.suppress(msgspec.ValidationError):
                clean[name] = msgspec.convert(found[name], kind)
    return cast(ProcessFacts, clean)


def _segments(folder: Path) -> list[tuple[int, int]]:
    """``(pid, segment)`` of every step-log file in the folder."""
    found = []
    for path in folder.iterdir():
        match = _SEGMENT_FILE.fullmatch(path.name)
        if match:
            found.append((int(match[1]), int(match[2])))
    return found


def open_spool(folder: Path, known: frozenset[int] = frozenset()) -> list[LogReader]:
    """Readers for the processes that have a step log in ``folder``, by process id.

    Args:
        folder: A spool folder.
        known: Process ids that are already being read.

    Files that are no (complete) step log yet are left for the next call.
    """
    readers = []
    for pid in sorted({pid for pid, _ in _segments(folder)} - known):
        try:
            readers.append(LogReader(folder, pid))
        except TraceMLError:
            continue
    return readers
