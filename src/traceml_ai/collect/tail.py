"""Follows the step logs of all training processes of a run into their aggregates."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

from traceml_ai.analyze.aggregate import RankAggregate
from traceml_ai.collect.notes import Notes
from traceml_ai.diagnose.summarize import RankInput
from traceml_ai.errors import TraceMLError
from traceml_ai.spool.reader import BLOCK_RECORDS, LogReader, open_spool

KEPT_BYTES = 64 << 20
"""Read segments stay for rebuilding the summary, but no more than this: they may lie in memory that
counts as the job's own."""


class _Log(NamedTuple):
    reader: LogReader
    aggregate: RankAggregate


class Tail:
    """All step logs of one spool folder, which may appear late and grow.

    Args:
        spool: The folder; ``None`` when nothing can be recorded.
        notes: For logs that can't be read.
        kept_bytes: Delete segments that were read beyond this size; ``None``: never delete.
        only: Read the log of this process alone.
    """

    def __init__(
        self, spool: Path | None, notes: Notes, *, kept_bytes: int | None = None, only: int | None = None
    ) -> None:
        self._spool = spool
        self._notes = notes
        self._kept_bytes = kept_bytes
        self._only = only
        self._logs: dict[int, _Log] = {}
        self._broken: set[int] = set()

    @property
    def pids(self) -> list[int]:
        """The processes that have a log, in the order they were found."""
        return list(self._logs)

    def find(self) -> None:
        """Open the logs that are new."""
        if self._spool is None:
            return
        try:
            found = open_spool(self._spool, frozenset(self._logs))
        except OSError as error:
            self._notes.add("spool", f"the step log is gone ({error.strerror}: {self._spool})", aloud=True)
            return
        for reader in found:
            if self._only not in {None, reader.pid}:
                continue
            self._logs[reader.pid] = _Log(reader, RankAggregate())
            if reader.header.first_step > 0:
                lost = f"the first {reader.header.first_step} steps of process {reader.pid}"
                self._notes.add(f"lost {reader.pid}", f"{lost} are no longer in the step log")

    def poll(self) -> None:
        """Read what is new."""
        self._read(final=False)
        self._discard()

    def finish(self) -> None:
        """Read what is left, the newest records too: nobody writes any more."""
        self._read(final=True)

    def touch(self) -> None:
        """Mark the folder as in use: old ones are cleaned up."""
        if self._spool is not None:
            with contextlib.suppress(OSError):  # somebody removed it, which was said
                os.utime(self._spool)

    def inputs(self) -> list[RankInput]:
        """Return what the analysis needs of every process."""
        return [
            RankInput(aggregate=log.aggregate, facts=log.reader.facts(), header=log.reader.header)
            for log in self._logs.values()
        ]

    def ranks(self) -> list[tuple[int, int | None, RankAggregate]]:
        """Return process id, rank (``None``: not known) and aggregate of each, in the order of the ranks."""
        found = [(pid, log.reader.header.rank, log.aggregate) for pid, log in self._logs.items()]
        found.sort(key=lambda each: each[1])
        return [(pid, None if rank < 0 else rank, aggregate) for pid, rank, aggregate in found]

    def _read(self, *, final: bool) -> None:
        self.find()
        for pid, log in self._logs.items():
            if pid in self._broken:
                continue
            try:
                _drain(log, final=final)
            except (TraceMLError, OSError) as error:
                self._broken.add(pid)
                self._notes.add(f"log {pid}", f"the rest of the step log can't be read: {error}", aloud=True)

    def _discard(self) -> None:
        if self._kept_bytes is None:
            return
        sizes = {pid: log.reader.consumed_bytes() for pid, log in self._logs.items()}
        while sizes and sum(sizes.values()) > self._kept_bytes:
            largest = max(sizes, key=lambda pid: sizes[pid])
            self._logs[largest].reader.discard_consumed()
            del sizes[largest]


def _drain(log: _Log, *, final: bool) -> None:
    read = log.reader.read_rest if final else log.reader.read_new
    while len(block := read()):
        log.aggregate.add(block)
        if not final and len(block) < BLOCK_RECORDS:
            return  # a loop that is faster than we are would have new ones for ever
