"""The collector: wakes, reads the logs, samples the processes, keeps the summary on disk fresh.

It runs in the launcher, single-threaded, beside the training process, which takes no notice of it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from traceml_ai.analyze.aggregate import Running
from traceml_ai.collect.deaths import Deaths
from traceml_ai.collect.family import descendants
from traceml_ai.collect.files import Files
from traceml_ai.collect.limits import read_machine
from traceml_ai.collect.notes import Guard, Notes
from traceml_ai.collect.oom import OomWatch
from traceml_ai.collect.publish import Publisher
from traceml_ai.collect.sampler import Processes, Sampler
from traceml_ai.collect.series import SampleSeries
from traceml_ai.collect.tail import KEPT_BYTES, Tail
from traceml_ai.diagnose.summarize import RankInput, summarize
from traceml_ai.schema.run import Death, RunInfo, Status
from traceml_ai.schema.samples import HostSample, MachineFacts
from traceml_ai.schema.summary import Summary, encode
from traceml_ai.spool.runfolder import SUMMARY_FILE, Manifest

MIN_PAUSE_S = 0.05
PAUSE_PER_ELAPSED = 1 / 40
"""A short run gets samples every 50 ms; by forty seconds into the run there is one a second. Memory
that grows in the allocator's steps of 4 MB needs some hundred samples to be told from noise."""

READ_EVERY_S = 2.0
"""The logs wait for us, samples do not, and a reading takes milliseconds even of few records. A new log is
opened at once all the same, as its folder may go, and whoever looks has it read meanwhile (`refresh`)."""

FIRST_SUMMARY_S = 1.0
SUMMARY_EVERY_S = 5.0
SUMMARY_BUDGET = 0.005
"""Share of a core for rewriting the summary: that of a very long run takes longer to make."""
MANY_RANKS, MANY_BUDGET = 1000, 0.05
"""The same where so many train, on as many processors: once in a minute and a half at 8,192 ranks."""


class Elsewhere(Protocol):
    """The training processes of other nodes, as far as those told."""

    def ranks(self) -> Sequence[tuple[int, int | None, Running]]:
        """Return process id, rank and figures of each."""

    def inputs(self) -> list[RankInput]:
        """Return what the analysis needs of each."""

    def samples(self) -> list[HostSample]:
        """Return what was sampled there."""

    def deaths(self) -> list[Death]:
        """Return the ends that were seen there."""

    def remarks(self) -> list[str]:
        """Return what is missing."""


class Collector:
    """Watches one run.

    Args:
        manifest: What was started.
        publisher: Where the summary goes.
        notes: What went wrong so far, and will.
        files: The file system with ``/proc`` and ``/sys``.
        clock: Nanoseconds, the clock of the step records.
    """

    def __init__(
        self,
        manifest: Manifest,
        publisher: Publisher,
        notes: Notes,
        *,
        files: Files | None = None,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        files = files or Files(notes=notes)
        self._manifest = manifest
        self._publisher = publisher
        self._notes = notes
        self._clock = clock
        self._guard = Guard(notes)
        self._tail = Tail(_path(manifest.spool), notes, kept_bytes=KEPT_BYTES)
        self._sampler = Sampler(Processes(files), notes, clock=clock)
        self._series: dict[int, SampleSeries] = {}
        self._ours: dict[int, bool] = {}
        self._read_due_ns = manifest.start_ns
        self._summary_due_ns = manifest.start_ns + round(FIRST_SUMMARY_S * 1e9)
        self._oom = OomWatch(files)
        self.latest: Summary | None = None
        self.elsewhere: Elsewhere | None = None
        self._deaths = Deaths(clock=clock)
        self.machine = self._guard("reading the machine", read_machine, files, os.environ)

    def pause_s(self) -> float:
        """Return how long to sleep until the next tick, in seconds."""
        elapsed_s = (self._clock() - self._manifest.start_ns) / 1e9
        longest = max(MIN_PAUSE_S, self._manifest.interval_s)
        return min(longest, max(MIN_PAUSE_S, elapsed_s * PAUSE_PER_ELAPSED))

    def tick(self) -> None:
        """Read the logs, sample, and rewrite the summary when it is due."""
        summary_is_due = self._clock() >= self._summary_due_ns
        if summary_is_due or self._clock() >= self._read_due_ns:
            self.refresh()
        else:
            self._guard("looking for step logs", self._tail.find)
        self._guard("sampling", self._sample)
        self._guard("watching the training processes", self._watch)
        if summary_is_due:
            self._guard("the running summary", self._rewrite)

    def refresh(self) -> None:
        """Read the logs: what a live view needs between two ticks."""
        self._guard("reading the step log", self._tail.poll)
        self._read_due_ns = self._clock() + round(READ_EVERY_S * 1e9)

    def ranks(self) -> Sequence[tuple[int, int | None, Running]]:
        """Return process id, rank and figures of each training process, in the order of the ranks."""
        if self.elsewhere is None:
            return self._tail.ranks()
        return [*self._tail.ranks(), *self.elsewhere.ranks()]

    def expect(self, pids: Iterable[int]) -> None:
        """Be there when these processes end, that have not recorded a step yet perhaps."""
        self._deaths.watch(pids)

    def adopt(self, manifest: Manifest) -> None:
        """Take what came by itself for the run: it says when it began, and what it is."""
        self._manifest = manifest

    def own_pids(self) -> list[int]:
        """Return the training processes of this node that have recorded steps."""
        return self._tail.pids

    def newest_samples(self) -> list[HostSample]:
        """Return the last sample of each training process."""
        newest = [series.newest for series in self._series.values()]
        return [sample for sample in newest if sample is not None]

    def inputs(self) -> list[RankInput]:
        """Return what was read of every training process so far."""
        return self._tail.inputs() + (self.elsewhere.inputs() if self.elsewhere else [])

    def deaths(self) -> list[Death]:
        """Return the training processes that were seen to end, in that order."""
        return self._deaths.found()

    def finish(self, status: Status, exit_code: int | None, *, end_ns: int) -> Summary | None:
        """Read what is left of the logs and write the final summary.

        Args:
            status: How the run ended.
            exit_code: What the shell sees; ``None``: not known.
            end_ns: When the training process was gone.

        Returns:
            The summary; ``None`` only after an error of our own, which was said.
        """
        self._guard("reading the end of the step log", self._tail.finish)
        self._guard("looking for kills", self._remark_kills, status)
        summary = self._guard("the summary", self._summary, status, exit_code, end_ns)
        self._deaths.close()
        if summary is not None:
            self._guard("writing the summary", self._publisher.write, SUMMARY_FILE, encode(summary))
        return summary

    def _sample(self) -> None:
        for sample in self._sampler.sample(self._pids()):
            self._series.setdefault(sample.pid, SampleSeries()).add(sample)

    def _watch(self) -> None:
        """Be there when a training process ends that is not ours to wait for."""
        child = self._manifest.child_pid
        self._deaths.watch(pid for pid in self._pids() if pid != child)

    def _pids(self) -> list[int]:
        """Return the processes to sample: those that train, the started one until any does.

        A process in a process-id namespace of its own logs under an id that is another process's
        here, so an id must belong to a descendant of the one that was started.
        """
        child = self._manifest.child_pid
        if child is None:  # we started none: those that train came by themselves
            return self._tail.pids
        for pid in self._tail.pids:
            if pid not in self._ours:
                self._ours[pid] = pid == child or pid in descendants(child)
        return [pid for pid, ours in self._ours.items() if ours] or [child]

    def _rewrite(self) -> None:
        begin = self._clock()
        self._guard("keeping the step log", self._tail.touch)
        self.latest = summary = self._summary("running", None, begin)
        self._publisher.write(SUMMARY_FILE, encode(summary))
        cost_ns = self._clock() - begin
        budget = MANY_BUDGET if (summary.run.world_size or 1) > MANY_RANKS else SUMMARY_BUDGET
        self._summary_due_ns = begin + round(max(SUMMARY_EVERY_S * 1e9, cost_ns / budget))

    def _summary(self, status: Status, exit_code: int | None, end_ns: int) -> Summary:
        sampled = [sample for series in self._series.values() for sample in series.samples()]
        deaths, warnings = self._deaths.found(), self._notes.messages()
        if self.elsewhere is not None:
            sampled += self.elsewhere.samples()
            deaths = sorted(deaths + self.elsewhere.deaths(), key=lambda death: death.t_ns)
            warnings += self.elsewhere.remarks() if status != "running" else []
        samples = sorted(sampled, key=lambda sample: sample.t_ns)
        run = run_info(
            self._manifest,
            status,
            exit_code,
            end_ns=end_ns,
            machine=self.machine,
            warnings=warnings,
            deaths=deaths,
        )
        return summarize(run, self.inputs(), samples)

    def _remark_kills(self, status: Status) -> None:
        kills = self._oom.kills()
        if not kills:
            return
        if status == "killed":
            message = "out of memory: the kernel killed the training process"
        else:
            message = f"out of memory: the kernel killed {kills} process(es) in this control group"
        self._notes.add("oom", message)


def run_info(
    manifest: Manifest,
    status: Status,
    exit_code: int | None,
    *,
    end_ns: int,
    machine: MachineFacts | None,
    warnings: list[str],
    deaths: Sequence[Death] = (),
) -> RunInfo:
    """Return a run as the analysis takes it."""
    return RunInfo(
        name=_text(manifest.name),
        status=status,
        exit_code=exit_code,
        started_at=manifest.started_at,
        start_ns=manifest.start_ns,
        end_ns=end_ns,
        command=[_text(word) for word in manifest.command],
        traceml_version=manifest.traceml_version,
        machine=machine,
        warnings=warnings,
        deaths=list(deaths),
    )


def _text(word: str) -> str:
    """Return a word of the command line, which need not be valid Unicode, as JSON can hold it."""
    return word.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)
