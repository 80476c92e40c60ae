"""One look at a training process, its workers and the host."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

import psutil

from traceml_ai.collect.family import descendants
from traceml_ai.collect.files import Files
from traceml_ai.collect.notes import Notes
from traceml_ai.schema.samples import HostSample

PSS_EVERY_S = 5.0
PSS_PER_ELAPSED = 1 / 40
"""A short run gets more of them: sixteen tell a leak from a cache that fills."""
PSS_BUDGET = 0.01
"""Share of time for reading PSS: the kernel walks the page tables of every worker for it."""
PSS_ADVANCE_S, PSS_ADVANCE_PART = 0.2, 0.75
"""Processor time for it beyond that, and what part of a reading may be taken from it: so large workers
get their sixteen within twenty seconds too."""

HOST_EVERY_S = 0.2
"""The host's processor time is counted in hundredths of a second: shorter looks are noise."""


class Counters(NamedTuple):
    """What one process has used."""

    cpu_s: float
    rss_bytes: int
    shared_bytes: int | None
    alive: bool


class HostCounters(NamedTuple):
    """What the whole machine uses."""

    cpu_pct: float | None
    used_bytes: int
    total_bytes: int


class Processes:
    """Reads counters of processes; one that is gone or forbidden is ``None``.

    Args:
        files: The file system, for what `psutil` reads too slowly.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._known: dict[int, psutil.Process] = {}

    def counters(self, pid: int) -> Counters | None:
        """Return a process's counters."""
        try:
            process = self._known.get(pid) or self._known.setdefault(pid, psutil.Process(pid))
            with process.oneshot():
                memory, cpu = process.memory_info(), process.cpu_times()
                alive = process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            self._known.pop(pid, None)
            return None
        return Counters(cpu.user + cpu.system, memory.rss, getattr(memory, "shared", None), alive)

    def pss_bytes(self, pid: int) -> int | None:
        """Return a process's proportional set size, ``None`` where the kernel does not give it."""
        kib = self._files.keyed(f"/proc/{pid}/smaps_rollup").get("Pss")
        return None if kib is None else kib * 1024

    def forget(self, gone: Iterable[int]) -> None:
        """Drop what is kept of processes that are no more."""
        for pid in gone:
            self._known.pop(pid, None)

    def host(self) -> HostCounters:
        """Return the machine's counters since the last call."""
        memory = psutil.virtual_memory()
        return HostCounters(psutil.cpu_percent(None), memory.total - memory.available, memory.total)


class Sampler:
    """Takes samples, the costly parts of them more rarely.

    Args:
        processes: Where the counters come from.
        notes: For what could not be read.
        clock: Nanoseconds, the clock of the step records.
        cpu_clock: Nanoseconds of processor time: what reading costs does not include waiting for a turn.
        family: How the descendants of a process are found.
    """

    def __init__(
        self,
        processes: Processes,
        notes: Notes,
        *,
        clock: Callable[[], int] = time.perf_counter_ns,
        cpu_clock: Callable[[], int] = time.thread_time_ns,
        family: Callable[..., list[int]] = descendants,
    ) -> None:
        self._processes = processes
        self._notes = notes
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._family = family
        self._begun_ns = clock()
        self._pss_due_ns = 0
        self._pss_advance_s = PSS_ADVANCE_S
        self._host_due_ns = clock() + round(HOST_EVERY_S * 1e9)
        self._pss_works = True
        self._workers: set[int] = set()
        processes.host()  # the first processor share has nothing before it

    def sample(self, pids: Collection[int]) -> list[HostSample]:
        """Look at each of the training processes that still lives."""
        host = self._host_if_due()
        with_pss = self._clock() >= self._pss_due_ns
        seen: set[int] = set()
        samples = [
            sample for pid in pids if (sample := self._one(pid, set(pids), host, seen, with_pss=with_pss))
        ]
        self._processes.forget(self._workers - seen)
        self._workers = seen
        return samples

    def _one(
        self, pid: int, all_pids: set[int], host: HostCounters | None, seen: set[int], *, with_pss: bool
    ) -> HostSample | None:
        main = self._processes.counters(pid)
        if main is None or not main.alive:
            return None
        family = self._family(pid, without=all_pids - {pid})
        found = {child: self._processes.counters(child) for child in family}
        workers = {child: counters for child, counters in found.items() if counters and counters.alive}
        seen.update(workers)
        return HostSample(
            t_ns=self._clock(),
            pid=pid,
            main_cpu_s=main.cpu_s,
            main_rss_bytes=main.rss_bytes,
            workers=len(workers),
            workers_cpu_s=sum(counters.cpu_s for counters in workers.values()),
            workers_pss_bytes=self._workers_memory(workers) if with_pss and workers else None,
            host_cpu_pct=host.cpu_pct if host else None,
            host_used_bytes=host.used_bytes if host else None,
            host_total_bytes=host.total_bytes if host else None,
        )

    def _host_if_due(self) -> HostCounters | None:
        now = self._clock()
        if now < self._host_due_ns:
            return None
        self._host_due_ns = now + round(HOST_EVERY_S * 1e9)
        return self._processes.host()

    def _workers_memory(self, workers: dict[int, Counters]) -> int | None:
        """Return the workers' PSS, or what they do not share where the kernel gives no PSS."""
        begin, cpu_begin = self._clock(), self._cpu_clock()
        total = self._pss(workers) if self._pss_works else None
        if total is None:
            total = _unshared(workers)
        cost_s = (self._cpu_clock() - cpu_begin) / 1e9
        given_s = min(PSS_ADVANCE_PART * cost_s, self._pss_advance_s)
        self._pss_advance_s -= given_s
        every_s = min(PSS_EVERY_S, PSS_PER_ELAPSED * (begin - self._begun_ns) / 1e9)
        self._pss_due_ns = begin + round(max(every_s, (cost_s - given_s) / PSS_BUDGET) * 1e9)
        return total

    def _pss(self, workers: dict[int, Counters]) -> int | None:
        read = [self._processes.pss_bytes(pid) for pid in workers]
        known = [pss for pss in read if pss is not None]
        if known:  # one that just ended has none
            return sum(known)
        if all(self._processes.counters(pid) for pid in workers):
            self._pss_works = False
            self._notes.add("pss", "the kernel gives no PSS: workers' memory is RSS less what is shared")
        return None


def _unshared(workers: dict[int, Counters]) -> int | None:
    shared = [counters.shared_bytes for counters in workers.values()]
    if any(value is None for value in shared):
        return None
    return sum(counters.rss_bytes for counters in workers.values()) - sum(value or 0 for value in shared)
