"""The step log's writer: memory-mapped segments, a dozen integer stores a step.

Runs in the training process: standard library only, no thread, no lock. Space is reserved when a
segment is created, so a full disk is an error here and now, never a SIGBUS at step 40,000.

Integers go in through a ``memoryview``: in a training loop, whose caches are cold, storing fifteen
of them so takes a third of the time that ``struct.pack_into`` takes.
"""

from __future__ import annotations

import contextlib
import errno
import json
import mmap
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

from traceml_ai.schema.step import COLUMNS, N_COLUMNS, RECORD_BYTES
from traceml_ai.spool import layout

# A page fault in a virtual machine costs as much as a step's whole bookkeeping: take them at once.
_POPULATE: dict[str, int] = (
    {"flags": mmap.MAP_SHARED | mmap.MAP_POPULATE} if hasattr(mmap, "MAP_POPULATE") else {}
)

_FULL = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}

__all__ = ["Identity", "StepLogWriter"]


class Identity(NamedTuple):
    """Who writes: the header fields that do not change with the steps. ``-1``: not known."""

    pid: int
    rank: int
    local_rank: int
    world_size: int
    origin_perf_ns: int
    origin_unix_ns: int


def _reserve(fd: int, size: int) -> None:
    """Allocate ``size`` bytes for real; raises ``OSError`` where they are not to be had."""
    fallocate = getattr(os, "posix_fallocate", None)
    if fallocate is not None:
        fallocate(fd, 0, size)
        return
    os.write(fd, bytes(size))


def _create(path: str, size: int) -> mmap.mmap:
    """Create and map a private file of ``size`` reserved bytes; elsewhere, when its place has filled up."""
    try:
        return _create_at(path, size)
    except OSError as error:
        made = _create_elsewhere(path, size) if error.errno in _FULL else None
        if made is None:
            raise
        return made


def _create_elsewhere(path: str, size: int) -> mmap.mmap | None:
    """Create it in the next place that has room, with a link to it where it belongs: that takes no room."""
    from traceml_ai.spool.place import candidates, judge  # rare, and not needed until then

    spool, name = os.path.split(path)
    for place in candidates():
        target = os.path.join(place, f"{os.path.basename(spool)}-{name}")
        if str(place) == os.path.dirname(spool) or judge(place).refused is not None:
            continue
        with contextlib.suppress(OSError):
            made = _create_at(target, size)
            try:
                os.symlink(target, path)
            except OSError:
                os.unlink(target)
                raise
            return made
    return None


def _create_at(path: str, size: int) -> mmap.mmap:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        _reserve(fd, size)
        return mmap.mmap(fd, size, **_POPULATE)
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(fd)


class _Segment:
    """One mapped file and the index of its first record."""

    def __init__(
        self, folder: str, who: Identity, number: int, first: int, capacity: int, settled: int
    ) -> None:
        path = os.path.join(folder, layout.segment_name(who.pid, number))
        self.map = _create(path, layout.HEADER_BYTES + capacity * RECORD_BYTES)
        self.ints = memoryview(self.map).cast("q")
        self.first = first
        fields = {
            layout.HEADER_SIZE: layout.HEADER_BYTES,
            layout.RECORD_SIZE: RECORD_BYTES,
            layout.CAPACITY: capacity,
            layout.SEGMENT: number,
            layout.FIRST_STEP: first,
            layout.PID: who.pid,
            layout.RANK: who.rank,
            layout.LOCAL_RANK: who.local_rank,
            layout.WORLD_SIZE: who.world_size,
            layout.ORIGIN_PERF_NS: who.origin_perf_ns,
            layout.ORIGIN_UNIX_NS: who.origin_unix_ns,
            layout.SETTLED: settled,
        }
        for offset, value in fields.items():
            self.put(offset, value)
        order = "<" if sys.byteorder == "little" else ">"
        described = json.dumps({"columns": COLUMNS, "format": f"{order}q"}).encode()
        self.map[layout.LAYOUT_OFFSET : layout.LAYOUT_OFFSET + len(described)] = described
        # Last: a reader takes the file for a step log once the magic is there.
        self.map[0 : len(layout.MAGIC)] = layout.MAGIC

    def put(self, offset: int, value: int) -> None:
        self.ints[offset // layout.INT_BYTES] = value


class StepLogWriter:
    """Appends step records to a spool folder.

    Args:
        folder: The run's spool folder; it must exist.
        who: Header fields of this process.
        capacity: Records per segment.
        settles_later: True when a device clock fills in columns after a record was appended; the
            reader then waits for `settle`.

    Raises:
        OSError: The first segment could not be created (no space, no permission).
    """

    # Together in memory: what an append touches is found in two cache lines.
    __slots__ = (
        "_capacity",
        "_earlier",
        "_folder",
        "_full",
        "_ints",
        "_number",
        "_segment",
        "_settled_start",
        "_who",
        "dropped",
    )

    def __init__(
        self,
        folder: str,
        who: Identity,
        *,
        capacity: int = layout.RECORDS_PER_SEGMENT,
        settles_later: bool = False,
    ) -> None:
        self._folder = folder
        self._who = who
        self._capacity = capacity
        self._settled_start = 0 if settles_later else -1
        self._segment = _Segment(folder, who, 0, 0, capacity, self._settled_start)
        self._earlier: _Segment | None = None
        self._number = 0
        self.dropped = 0
        self._full = False
        self._ints = self._segment.ints

    @property
    def count(self) -> int:
        """Records in all segments."""
        return self._segment.first + self._in_segment

    @property
    def _in_segment(self) -> int:
        # Kept in the map alone: the step path adds records in place, see `place`.
        return int(self._ints[layout.COUNT_AT])

    @property
    def mapped_bytes(self) -> int:
        """What the current segment takes in memory."""
        return len(self._segment.map)

    def append(self, values: Sequence[int]) -> None:
        """Add one record; columns beyond the values given are zero."""
        n = self._in_segment
        if n >= self._capacity:
            if not self._rotate():
                self.dropped += 1
                self._segment.put(layout.DROPPED, self.dropped)
                return
            n = 0
        ints = self._ints
        at = layout.FIRST_AT + n * N_COLUMNS
        for value in values:
            ints[at] = value
            at += 1
        ints[layout.COUNT_AT] = n + 1

    def place(self) -> tuple[memoryview, int, int]:
        """Where a record may be written in place, as `append` does it.

        Returns:
            The segment's integers, how many records it holds, and how many it can hold.
        """
        return self._ints, self._in_segment, self._capacity

    def amend(self, values: Sequence[int]) -> None:
        """Replace the newest record (a step turned out to go on); all columns must be given."""
        if self._in_segment and not self._full:
            for at, value in enumerate(values, self._newest_at()):
                self._ints[at] = value

    def newest(self) -> list[int]:
        """The newest record of this segment; zeros when it has none."""
        if not self._in_segment:
            return [0] * N_COLUMNS
        at = self._newest_at()
        return self._ints[at : at + N_COLUMNS].tolist()

    def _newest_at(self) -> int:
        return layout.FIRST_AT + (self._in_segment - 1) * N_COLUMNS

    def patch(self, index: int, columns: dict[int, int]) -> None:
        """Fill in columns of the record with running number ``index`` (0 is the first ever)."""
        segment = self._segment
        if index < segment.first:
            if self._earlier is None or index < self._earlier.first:
                return
            segment = self._earlier
        base = layout.FIRST_AT + (index - segment.first) * N_COLUMNS
        for column, value in columns.items():
            segment.ints[base + column] = value

    def settle(self, count: int) -> None:
        """Declare the first ``count`` records final: no `patch` will follow for them."""
        if self._earlier is not None:
            first = self._segment.first
            self._earlier.put(layout.SETTLED, min(count, first) - self._earlier.first)
            if count >= first:
                self._earlier = None
        self._segment.put(layout.SETTLED, max(0, count - self._segment.first))

    def put(self, offset: int, value: int) -> None:
        """Store one header integer in the current segment."""
        self._segment.put(offset, value)

    def identify(self, who: Identity) -> None:
        """Correct the identity once the process group is up."""
        self._who = who
        self.put(layout.RANK, who.rank)
        self.put(layout.LOCAL_RANK, who.local_rank)
        self.put(layout.WORLD_SIZE, who.world_size)

    def close(self) -> None:
        """Declare that no record will follow. The files stay for the reader."""
        if self._settled_start >= 0:
            self.settle(self.count)
        self.put(layout.CLOSED, 1)

    def _forget_oldest(self) -> None:
        """Bound the disk when nobody reads (any more): a quarter of a gigabyte, the newest steps."""
        oldest = self._number + 1 - layout.MAX_SEGMENTS
        if oldest >= 0:
            path = os.path.join(self._folder, layout.segment_name(self._who.pid, oldest))
            with contextlib.suppress(OSError):
                layout.discard(path)

    def _rotate(self) -> bool:
        """Go on in a new segment; False when there is no room for one (tried once per record)."""
        try:
            following = _Segment(
                self._folder,
                self._who,
                self._number + 1,
                self.count,
                self._capacity,
                self._settled_start,
            )
        except OSError:
            self._full = True
            return False
        for offset in (layout.ABORTED, layout.DROPPED, layout.OPEN_NS):
            following.map[offset : offset + 8] = self._segment.map[offset : offset + 8]
        self._segment.put(layout.NEXT_SEGMENT, 1)
        self._forget_oldest()
        self._earlier = self._segment if self._settled_start >= 0 else None
        self._segment = following
        self._number += 1
        self._ints = following.ints
        self._full = False
        return True
