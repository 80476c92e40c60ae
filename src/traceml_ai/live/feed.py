"""Writes snapshots of a run beside the collector, while somebody looks and not otherwise."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from traceml_ai.analyze.aggregate import Running
from traceml_ai.analyze.columns import EXT
from traceml_ai.collect.collector import Collector
from traceml_ai.live.recent import Recent, Window, curve_of
from traceml_ai.live.snapshot import (
    SNAPSHOT_FILE,
    Curve,
    Machine,
    Memory,
    Now,
    RankNow,
    Snapshot,
    encode_snapshot,
)
from traceml_ai.schema.run import Status
from traceml_ai.schema.samples import HostSample
from traceml_ai.schema.summary import Summary
from traceml_ai.spool.atomic import write_atomic

WATCHED_FILE = "watched"
"""In the spool folder; whoever looks touches it."""

WATCHED_FOR_S = 5.0
EVERY_S = 0.5
BUDGET = 0.02
"""Share of a core for snapshots: those of very many ranks come more rarely."""

MANY_RANKS, MANY_BUDGET = 1000, 0.25
"""The same where so many train: such a job has processors for a view of its last second."""

_KEPT_SAMPLES = 240


class RankState(NamedTuple):
    """One training process as the collector knows it."""

    pid: int
    rank: int | None
    aggregate: Running


class State(NamedTuple):
    """What the collector knows of a run, to be read at once and not kept."""

    name: str
    start_ns: int
    ranks: Sequence[RankState]
    samples: Sequence[HostSample]  # the newest of each training process
    usable_cpus: float | None
    summary: Summary | None


def state_of(collector: Collector, name: str, start_ns: int) -> State:
    """Return what a collector knows now."""
    machine = collector.machine
    return State(
        name=name,
        start_ns=start_ns,
        ranks=[RankState(*each) for each in collector.ranks()],
        samples=collector.newest_samples(),
        usable_cpus=machine.usable_cpus if machine else None,
        summary=collector.latest,
    )


class Feed:
    """Makes a snapshot every half second while the run is looked at.

    Args:
        spool: The run's spool folder.
        clock: Nanoseconds, the clock of the step records.
        wall: Seconds since the epoch.
    """

    def __init__(
        self,
        spool: Path,
        *,
        clock: Callable[[], int] = time.perf_counter_ns,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._spool = spool
        self._clock = clock
        self._wall = wall
        self._recent: dict[int, Recent] = {}
        self._memory: list[tuple[float, int | None, int | None]] = []
        self._last: dict[int, HostSample] = {}
        self._due_ns = 0
        self._cores: float | None = None

    def pause_s(self) -> float | None:
        """Return how long until the next snapshot is due, ``None`` while nobody looks."""
        return max(0.0, (self._due_ns - self._clock()) / 1e9) if self.is_watched() else None

    def is_watched(self) -> bool:
        """Whether somebody looked lately."""
        try:
            touched = (self._spool / WATCHED_FILE).stat().st_mtime
        except OSError:
            return False
        return self._wall() - touched < WATCHED_FOR_S

    def publish(self, state: State, status: Status = "running") -> None:
        """Write a snapshot if one is due and wanted."""
        begin = self._clock()
        if begin < self._due_ns or not self.is_watched():
            return
        cpu_begin = time.thread_time_ns()
        snapshot = self.snapshot(state, status)
        write_atomic(self._spool / SNAPSHOT_FILE, encode_snapshot(snapshot))
        cost_ns = time.thread_time_ns() - cpu_begin
        self._due_ns = begin + round(max(EVERY_S * 1e9, cost_ns / _budget(state)))

    def snapshot(self, state: State, status: Status = "running") -> Snapshot:
        """Return the run at this moment."""
        return Snapshot(
            taken_at=self._wall(), name=state.name, status=status, now=self._now(state), summary=state.summary
        )

    def _now(self, state: State) -> Now:
        t_ns = self._clock()
        windows = {
            each.pid: self._recent.setdefault(each.pid, Recent()).look(each.aggregate, t_ns)
            for each in state.ranks
        }
        first = state.ranks[0] if state.ranks else None
        window = windows[first.pid] if first else Window(0, 0.0)
        elapsed_s = (t_ns - state.start_ns) / 1e9
        return Now(
            elapsed_s=elapsed_s,
            steps=first.aggregate.count if first else 0,
            window_steps=window.steps,
            window_s=window.seconds if window.steps else None,
            step_ms=window.step_ms,
            phases_ms=dict(window.phases_ms),
            between_ms=window.between_ms,
            steps_per_sec=_rate(window.steps or None, window.seconds),
            samples_per_sec=_rate(_all_samples(list(windows.values())), window.seconds),
            curve=curve_of(first.aggregate) if first else Curve(),
            ranks=[_rank(each, windows[each.pid]) for each in state.ranks],
            memory=self._memory_of(state, elapsed_s, first),
            machine=self._machine_of(state),
        )

    def _memory_of(self, state: State, elapsed_s: float, first: RankState | None) -> Memory:
        workers = _sum([sample.workers_pss_bytes for sample in state.samples if sample.workers_pss_bytes])
        self._memory.append((elapsed_s, _sum([each.main_rss_bytes for each in state.samples]), workers))
        if len(self._memory) > _KEPT_SAMPLES:
            del self._memory[0 : _KEPT_SAMPLES // 2 : 2]  # the older half at half its resolution
        return Memory(
            at_s=[round(at, 2) for at, _, _ in self._memory],
            main_rss_bytes=[main for _, main, _ in self._memory],
            workers_pss_bytes=[workers for _, _, workers in self._memory],
            peak_allocated_bytes=_last_peak(first, "peak_allocated_bytes"),
            peak_reserved_bytes=_last_peak(first, "peak_reserved_bytes"),
        )

    def _machine_of(self, state: State) -> Machine:
        newest = state.samples[-1] if state.samples else None
        self._cores = _busy_cores(self._last, state.samples, self._cores)
        self._last = {sample.pid: sample for sample in state.samples}
        return Machine(
            host_cpu_pct=newest.host_cpu_pct if newest else None,
            host_used_bytes=newest.host_used_bytes if newest else None,
            host_total_bytes=newest.host_total_bytes if newest else None,
            busy_cores=self._cores,
            usable_cpus=state.usable_cpus,
            workers=_sum([sample.workers for sample in state.samples]),
        )


def _budget(state: State) -> float:
    return MANY_BUDGET if len(state.ranks) > MANY_RANKS else BUDGET


def _rank(state: RankState, window: Window) -> RankNow:
    return RankNow(
        rank=state.rank,
        pid=state.pid,
        steps=state.aggregate.count,
        step_ms=window.step_ms,
        input_wait_ms=window.phases_ms.get("input_wait"),
    )


def _busy_cores(
    before: dict[int, HostSample], samples: Sequence[HostSample], otherwise: float | None
) -> float | None:
    """Return how many processors the sampled processes kept busy between two looks."""
    cores: list[float] = []
    for sample in samples:
        last = before.get(sample.pid)
        if last is None or last.t_ns >= sample.t_ns or sample.main_cpu_s is None or last.main_cpu_s is None:
            continue
        used = sample.main_cpu_s - last.main_cpu_s
        if sample.workers_cpu_s is not None and last.workers_cpu_s is not None:
            used += max(0.0, sample.workers_cpu_s - last.workers_cpu_s)  # a worker that ended takes its count
        cores.append(used / ((sample.t_ns - last.t_ns) / 1e9))
    return sum(cores) if cores else otherwise


def _last_peak(first: RankState | None, column: str) -> int | None:
    if first is None:
        return None
    return first.aggregate.last_bucket_peak(EXT[column]) or None


def _all_samples(windows: Sequence[Window]) -> int | None:
    known = [window.samples for window in windows if window.samples is not None]
    return sum(known) if known and len(known) == len(windows) else None


def _rate(count: int | None, seconds: float) -> float | None:
    return None if count is None or seconds <= 0 else count / seconds


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
