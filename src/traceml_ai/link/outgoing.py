"""What a node has to tell the owner: read from its step logs, sent until the owner says that it has it.

One report at a time is on its way. Where the owner lacks records (it was started again, say), they are
read again from the log, as far as they are still there.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from traceml_ai.analyze.aggregate import Running
from traceml_ai.errors import TraceMLError
from traceml_ai.link.blocks import MOST_RECORDS, encode_block
from traceml_ai.link.frames import Answer, End, Part, Pulse, Report
from traceml_ai.link.pulses import encode_counts
from traceml_ai.schema.facts import ProcessFacts
from traceml_ai.schema.run import Death
from traceml_ai.schema.samples import HostSample
from traceml_ai.schema.step import INDEX, N_COLUMNS
from traceml_ai.spool.reader import LogReader, open_spool

_STEP = INDEX["step"]
_MOST_BYTES = 2 << 20
"""Of records in one report: it has to stay below the largest frame with all else."""


class _Stream:
    """The log of one training process."""

    def __init__(self, spool: Path, reader: LogReader) -> None:
        self._spool = spool
        self.reader = reader
        self.rest: NDArray[np.int64] = np.empty((0, N_COLUMNS), np.int64)
        self.sent = 0  # records the owner was told of
        self.told: ProcessFacts | None = None

    @property
    def key(self) -> tuple[int, int]:
        return self.reader.pid, self.reader.header.origin_perf_ns

    def go_to(self, taken: int) -> None:
        """Go on behind so many records, reading the log again if they were read before."""
        if taken < self.sent:
            self.reader = LogReader(self._spool, self.reader.pid)
            self.rest = self.rest[:0]
        self.sent = taken

    def part(self, *, final: bool) -> Part | None:
        """Return the next records and whatever else is new."""
        while len(self.rest) == 0 or self.rest[-1, _STEP] < self.sent:
            self.rest = self.reader.read_rest() if final else self.reader.read_new()
            if len(self.rest) == 0:
                break
        block = self.rest[self.rest[:, _STEP] >= self.sent][:MOST_RECORDS]
        facts = self.reader.facts()
        if len(block) == 0 and facts == self.told and not final:
            return None  # the last report names every process: an owner that lacks records of one sees it
        header = self.reader.header
        first = int(block[0, _STEP]) if len(block) else self.sent
        skipped = first > self.sent
        self.rest = self.rest[self.rest[:, _STEP] >= first + len(block)]
        self.sent = first + len(block)
        news = None if facts == self.told else dict(facts)
        self.told = facts
        return Part(
            pid=self.reader.pid,
            origin_ns=header.origin_perf_ns,
            rank=header.rank,
            local_rank=header.local_rank,
            world_size=header.world_size,
            aborted=header.aborted,
            dropped=header.dropped,
            first=first,
            skipped=skipped,
            records=encode_block(block),
            facts=news,
        )


class Outgoing:
    """Makes a node's reports.

    Args:
        spool: Where its training processes write their logs.
        node: Its number.
        host: Its name.
        session: Tells this sender from one before it.
    """

    def __init__(self, spool: Path, node: int, host: str, session: int) -> None:
        self._spool = spool
        self._node = node
        self._host = host
        self._session = session
        self._number = 0
        self._owner: int | None = None
        self._streams: dict[int, _Stream] = {}
        self._samples: list[HostSample] = []
        self._deaths: list[Death] = []
        self._deaths_told = 0
        self._warnings: list[str] = []
        self._end: tuple[int | None] | None = None
        self._is_told_end = False
        self._broken: set[int] = set()

    @property
    def is_done(self) -> bool:
        """Whether the owner has everything, the end included."""
        return self._is_told_end

    def add(self, samples: list[HostSample], deaths: list[Death], warnings: list[str]) -> None:
        """Take note of what the node's collector saw: its newest samples, all deaths, all warnings."""
        self._samples = samples
        self._deaths = deaths
        self._warnings = warnings

    def end(self, exit_code: int | None) -> None:
        """Nothing will follow: the program has ended."""
        self._end = (exit_code,)

    def report(self) -> Report:
        """Return the next report; ask again only when it was answered."""
        parts, size, all_told = [], 0, True
        self._find()
        for stream in self._streams.values():
            if size > _MOST_BYTES:
                all_told = False
                break
            part = self._next_of(stream)
            if part is not None:
                parts.append(part)
                size += len(part.records)
                all_told = all_told and part.first + MOST_RECORDS > stream.sent
        ended = self._end is not None and all_told
        deaths = self._deaths[self._deaths_told :]
        self._deaths_told = len(self._deaths)
        return Report(
            node=self._node,
            session=self._session,
            number=self._number,
            host=self._host,
            clock_ns=time.time_ns() - time.perf_counter_ns(),
            parts=parts,
            samples=self._samples,
            deaths=[End(death.pid, death.status, death.t_ns) for death in deaths],
            ended=ended,
            exit_code=self._end[0] if self._end else None,
            warnings=self._warnings[:20],
        )

    def pulse(self, ranks: Sequence[tuple[int, int | None, Running]]) -> Pulse:
        """Return how far the node's processes are.

        Args:
            ranks: Process id, rank and figures of each.
        """
        counts = encode_counts([running for _, _, running in ranks])
        return Pulse(self._node, self._session, [pid for pid, _, _ in ranks], counts)

    def answered(self, report: Report, answer: Answer) -> None:
        """Take note of what the owner has."""
        if answer.session != self._session or answer.number != self._number:
            return  # an answer to what was sent twice
        self._number += 1
        is_new_owner = self._owner not in {None, answer.owner}
        self._owner = answer.owner
        taken = {(cursor.pid, cursor.origin_ns): cursor.taken for cursor in answer.cursors}
        is_behind = False
        for stream in self._streams.values():
            owner_has = taken.get(stream.key, 0 if is_new_owner else stream.sent)
            is_behind = is_behind or owner_has < stream.sent
            self._go_to(stream, min(owner_has, stream.sent))
            if is_new_owner:
                stream.told = None
        if is_new_owner:
            self._deaths_told = 0
        self._is_told_end = report.ended and not is_behind and not is_new_owner

    def _find(self) -> None:
        try:
            found = open_spool(self._spool, frozenset(self._streams))
        except OSError:
            return
        for reader in found:
            self._streams[reader.pid] = _Stream(self._spool, reader)

    def _next_of(self, stream: _Stream) -> Part | None:
        if stream.reader.pid in self._broken:
            return None
        try:
            return stream.part(final=self._end is not None)
        except (TraceMLError, OSError):  # the node's own collector says so
            self._broken.add(stream.reader.pid)
            return None

    def _go_to(self, stream: _Stream, taken: int) -> None:
        try:
            stream.go_to(taken)
        except (TraceMLError, OSError):
            self._broken.add(stream.reader.pid)
