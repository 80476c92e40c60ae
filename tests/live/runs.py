"""Run folders as a launcher makes them, from synthetic records of any number of ranks."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from fakes import START_NS, Header, Run, run_info, sample, samples_over
from traceml_ai.diagnose.signals import RankInput
from traceml_ai.diagnose.summarize import summarize
from traceml_ai.live.feed import WATCHED_FILE, Feed, RankState, State
from traceml_ai.live.output import OutputWriter
from traceml_ai.live.snapshot import Snapshot
from traceml_ai.live.source import Source
from traceml_ai.schema.run import Status
from traceml_ai.schema.samples import HostSample
from traceml_ai.schema.summary import Summary, encode
from traceml_ai.spool.runfolder import SUMMARY_FILE, Manifest, birth_of


def manifest(spool: Path, *, name: str = "digits") -> Manifest:
    """Return the manifest of a run whose launcher and program are this process."""
    birth = birth_of(os.getpid())
    return Manifest(
        name=name,
        traceml_version="0.1.0",
        command=["python", "train.py"],
        cwd="/",
        spool=str(spool),
        started_at="2026-01-02T03:04:05Z",
        start_ns=START_NS,
        interval_s=1.0,
        hostname="box",
        uid=None,
        launcher_pid=os.getpid(),
        launcher_birth=birth,
        child_pid=os.getpid(),
        child_birth=birth,
    )


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self, now_ns: int) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        """Return the time."""
        return self.now_ns


class LiveRun:
    """A run that goes on as long as the test wants.

    Args:
        folder: Its run folder and its spool are made in there.
        ranks: So many training processes.
        slow: The rank that takes longer, if any.
    """

    def __init__(self, folder: Path, *, ranks: int = 1, slow: int | None = None) -> None:
        self.folder, self.spool = folder / "logs" / "digits", folder / "spool"
        self.folder.mkdir(parents=True)
        self.spool.mkdir()
        manifest(self.spool).write(self.folder)
        self._runs = [Run(seed=rank) for rank in range(ranks)]
        self._inputs: list[RankInput] = [
            run.rank(header=Header(pid=1000 + rank, rank=rank), rank=rank, world_size=ranks)
            for rank, run in enumerate(self._runs)
        ]
        self._slow = slow
        self.clock = Clock(START_NS)
        self.feed = Feed(self.spool, clock=self.clock)
        self.output = OutputWriter(self.spool)
        self.summary: Summary | None = None
        self.samples: list[HostSample] = []

    def train(self, steps: int, *, slower: float = 1.0, forward: float = 3.0) -> None:
        """Let every rank train so many steps."""
        for rank, (run, given) in enumerate(zip(self._runs, self._inputs, strict=True)):
            before = len(run.records())
            factor = slower * (1.4 if rank == self._slow else 1.0)
            run.steps(steps, input_wait=4.0 * slower, forward=forward * factor, backward=5.0 * factor)
            given.aggregate.add(run.records()[before:])
        self.clock.now_ns = max(self.clock.now_ns, *(run.now_ns for run in self._runs))

    def analyse(self, status: Status = "running") -> Summary:
        """Judge the run so far, as the collector does every few seconds."""
        self.samples = samples_over(self._runs[0], 40)
        info = run_info(status=status, end_ns=self.clock.now_ns)
        self.summary = summarize(info, self._inputs, self.samples)
        (self.folder / SUMMARY_FILE).write_bytes(encode(self.summary))
        return self.summary

    def state(self) -> State:
        """Return what a collector would know."""
        ranks = [RankState(1000 + rank, rank, given.aggregate) for rank, given in enumerate(self._inputs)]
        newest: Sequence[HostSample] = [sample(self.clock.now_ns)]
        return State("digits", START_NS, ranks, newest, 2.0, self.summary)

    def publish(self) -> Snapshot:
        """Write a snapshot, and return it."""
        (self.spool / WATCHED_FILE).touch()
        self.clock.now_ns += 10_000_000_000  # however dear the last one was
        self.feed.publish(self.state())
        found = Source(self.folder).snapshot()
        assert found is not None
        return found


def long_ago(path: Path) -> None:
    """Make a file look as if nobody had touched it for a minute."""
    past = time.time() - 60
    os.utime(path, (past, past))
