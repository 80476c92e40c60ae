from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from traceml_ai.collect.files import Files
from traceml_ai.collect.notes import Notes
from traceml_ai.collect.sampler import (
    PSS_ADVANCE_S,
    PSS_BUDGET,
    PSS_EVERY_S,
    PSS_PER_ELAPSED,
    Counters,
    HostCounters,
    Processes,
    Sampler,
)

MIB = 1 << 20


class FakeClock:
    """A clock that moves when told to."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns

    def forward(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)


class FakeProcesses(Processes):
    """Processes as a table."""

    def __init__(self, clock: FakeClock) -> None:
        self.table: dict[int, Counters] = {}
        self.pss: dict[int, int] = {}
        self.pss_cost_s = 0.0
        self.forgotten: set[int] = set()
        self._clock = clock

    def counters(self, pid: int) -> Counters | None:
        return self.table.get(pid)

    def pss_bytes(self, pid: int) -> int | None:
        self._clock.forward(self.pss_cost_s)
        return self.pss.get(pid)

    def forget(self, gone: Iterable[int]) -> None:
        self.forgotten |= set(gone)

    def host(self) -> HostCounters:
        return HostCounters(50.0, 3 * MIB, 9 * MIB)


class Bench:
    """A sampler over fakes: process 1 trains, 2 and 3 are its workers."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.processes = FakeProcesses(self.clock)
        self.notes = Notes()
        self.children = [2, 3]
        self.processes.table = {
            1: Counters(10.0, 100 * MIB, 5 * MIB, alive=True),
            2: Counters(1.0, 60 * MIB, 50 * MIB, alive=True),
            3: Counters(2.0, 70 * MIB, 50 * MIB, alive=True),
        }
        self.processes.pss = {2: 20 * MIB, 3: 30 * MIB}
        self.sampler = Sampler(
            self.processes, self.notes, clock=self.clock, cpu_clock=self.clock, family=self.family
        )

    def family(self, _pid: int, *, without: Iterable[int] = ()) -> list[int]:
        return [child for child in self.children if child not in set(without)]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_sample_holds_the_process_and_its_workers(bench: Bench) -> None:
    bench.clock.forward(1)

    (sample,) = bench.sampler.sample([1])

    assert sample == (10**9, 1, 10.0, 100 * MIB, 2, 3.0, 50 * MIB, 50.0, 3 * MIB, 9 * MIB)


def test_a_process_that_is_gone_gives_no_sample(bench: Bench) -> None:
    assert bench.sampler.sample([99]) == []


def test_a_zombie_is_gone(bench: Bench) -> None:
    bench.processes.table[1] = Counters(10.0, 0, 0, alive=False)

    assert bench.sampler.sample([1]) == []


def test_a_dead_worker_is_not_counted(bench: Bench) -> None:
    bench.processes.table[2] = Counters(1.0, 0, 0, alive=False)

    (sample,) = bench.sampler.sample([1])

    assert (sample.workers, sample.workers_cpu_s, sample.workers_pss_bytes) == (1, 2.0, 30 * MIB)


def test_another_training_process_is_no_worker(bench: Bench) -> None:
    first, second = bench.sampler.sample([1, 3])

    assert (first.pid, first.workers) == (1, 1)
    assert second.pid == 3


def test_without_workers_their_memory_is_not_zero_but_absent(bench: Bench) -> None:
    bench.children = []

    (sample,) = bench.sampler.sample([1])

    assert (sample.workers, sample.workers_pss_bytes) == (0, None)


def test_the_workers_memory_is_read_every_few_seconds(bench: Bench) -> None:
    bench.clock.forward(PSS_EVERY_S / PSS_PER_ELAPSED)
    read = []
    for _ in range(12):
        read += [sample.workers_pss_bytes is not None for sample in bench.sampler.sample([1])]
        bench.clock.forward(1)

    assert read == [at % PSS_EVERY_S == 0 for at in range(12)]


def test_the_workers_memory_is_read_more_often_in_a_short_run(bench: Bench) -> None:
    read = 0
    for _ in range(100):
        bench.clock.forward(0.1)
        (sample,) = bench.sampler.sample([1])
        read += sample.workers_pss_bytes is not None

    assert 16 <= read < 80


def test_memory_that_is_costly_to_read_is_read_more_rarely(bench: Bench) -> None:
    bench.processes.pss_cost_s = 1.0
    bench.sampler.sample([1])  # two workers: two seconds

    bench.clock.forward((2 - PSS_ADVANCE_S) / PSS_BUDGET - 3)
    (early,) = bench.sampler.sample([1])
    bench.clock.forward(2)
    (late,) = bench.sampler.sample([1])

    assert early.workers_pss_bytes is None
    assert late.workers_pss_bytes == 50 * MIB


def test_large_workers_are_read_often_enough_in_a_run_of_twenty_seconds(bench: Bench) -> None:
    bench.processes.pss_cost_s = 0.005  # each of two
    read = 0
    while bench.clock.now_ns < 20e9:
        bench.clock.forward(0.1)
        (sample,) = bench.sampler.sample([1])
        read += sample.workers_pss_bytes is not None and bench.clock.now_ns > 5e9

    assert read >= 16


def test_without_pss_the_unshared_memory_is_taken_and_said_once(bench: Bench) -> None:
    bench.processes.pss = {}

    (first,) = bench.sampler.sample([1])
    bench.clock.forward(PSS_EVERY_S)
    (second,) = bench.sampler.sample([1])

    assert first.workers_pss_bytes == second.workers_pss_bytes == 30 * MIB
    assert bench.notes.messages() == ["the kernel gives no PSS: workers' memory is RSS less what is shared"]


def test_a_worker_that_ends_while_it_is_read_is_left_out(bench: Bench) -> None:
    bench.processes.pss = {3: 30 * MIB}

    (sample,) = bench.sampler.sample([1])

    assert sample.workers_pss_bytes == 30 * MIB
    assert bench.notes.messages() == []


def test_unknown_shared_memory_is_absent(bench: Bench) -> None:
    bench.processes.pss = {}
    bench.processes.table[2] = Counters(1.0, 60 * MIB, None, alive=True)

    (sample,) = bench.sampler.sample([1])

    assert sample.workers_pss_bytes is None


def test_the_host_is_not_looked_at_more_often_than_its_clock_can_tell(bench: Bench) -> None:
    seen = []
    for _ in range(9):
        (sample,) = bench.sampler.sample([1])
        seen.append(sample.host_cpu_pct is not None)
        bench.clock.forward(0.05)

    assert seen == [False] * 4 + [True] + [False] * 3 + [True]


def test_workers_that_ended_are_forgotten(bench: Bench) -> None:
    bench.sampler.sample([1])
    bench.children = [2]
    bench.sampler.sample([1])

    assert bench.processes.forgotten == {3}


def test_a_real_process_is_read() -> None:
    processes = Processes(Files())
    counters = processes.counters(os.getpid())

    assert counters is not None
    assert counters.alive
    assert counters.cpu_s > 0
    assert counters.rss_bytes > MIB
    assert (processes.pss_bytes(os.getpid()) or MIB) >= MIB


def test_a_process_that_ended_has_no_counters() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        pass

    assert Processes(Files()).counters(child.pid) is None


def test_a_forbidden_pss_is_none_and_the_run_goes_on(tmp_path: Path) -> None:
    assert Processes(Files(tmp_path)).pss_bytes(os.getpid()) is None
