"""ThroughputMonitor, sentence by sentence of what it promises."""

from __future__ import annotations

import csv
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceml_ai.errors import UsageError
from traceml_ai.monitoring import ThroughputMonitor


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def monitor(clock: Clock) -> ThroughputMonitor:
    return ThroughputMonitor("cpu", record_every_n_steps=1, clock=clock)


def slow_items(clock: Clock, count: int, seconds: float) -> Iterator[int]:
    for i in range(count):
        clock.now += seconds
        yield i


def snapshot_of(monitor: ThroughputMonitor, step: int = 1) -> dict[str, Any]:
    snapshot = monitor.step(step)
    assert snapshot is not None
    return snapshot


def test_the_time_to_produce_an_item_is_data_and_the_loop_body_is_not(
    monitor: ThroughputMonitor, clock: Clock
) -> None:
    items = []
    for item in monitor.iterate(slow_items(clock, 3, 0.5)):
        items.append(item)
        clock.now += 10
    assert items == [0, 1, 2]
    assert snapshot_of(monitor)["t_data"] == pytest.approx(1.5)


def test_a_block_is_accounted_to_its_phase_and_repeated_ones_add_up(
    monitor: ThroughputMonitor, clock: Clock
) -> None:
    for _ in range(2):
        with monitor.phase("probes"):
            clock.now += 2
    assert snapshot_of(monitor)["t_probes"] == 4


def test_nothing_is_recorded_when_the_block_raises(monitor: ThroughputMonitor, clock: Clock) -> None:
    def fails() -> None:
        with monitor.phase("features"):
            clock.now += 2
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert "t_features" not in snapshot_of(monitor)


def test_phases_are_reported_in_the_order_first_seen(monitor: ThroughputMonitor, clock: Clock) -> None:
    for name in ("b", "a", "b", "c"):
        with monitor.phase(name):
            clock.now += 1
    with monitor.phase("outer"), monitor.phase("inner"):
        clock.now += 1
    keys = [key for key in snapshot_of(monitor) if key.startswith("t_")]
    assert keys == ["t_b", "t_a", "t_c", "t_outer", "t_inner"]
    assert [key for key in snapshot_of(monitor, 2) if key.startswith("t_")] == keys


def test_a_snapshot_is_due_every_n_steps(clock: Clock) -> None:
    monitor = ThroughputMonitor("cpu", record_every_n_steps=3, clock=clock)
    due = [step for step in range(1, 10) if monitor.step(step) is not None]
    assert due == [3, 6, 9]
    assert [record["step"] for record in monitor.records] == due


def test_snapshots_cover_disjoint_intervals(monitor: ThroughputMonitor, clock: Clock) -> None:
    for seconds in (1, 5):
        with monitor.phase("work"):
            clock.now += seconds
        monitor.record_samples(10)
        monitor.step(1)
    assert [record["t_work"] for record in monitor.records] == [1, 5]
    assert [record["samples_per_sec"] for record in monitor.records] == [10, 2]


def test_throughput_is_samples_over_the_time_of_all_phases(monitor: ThroughputMonitor, clock: Clock) -> None:
    for _ in monitor.iterate(slow_items(clock, 2, 1)):
        with monitor.phase("work"):
            clock.now += 3
        clock.now += 100  # in no phase
        monitor.record_samples(16)
    assert snapshot_of(monitor)["samples_per_sec"] == 32 / 8


def test_a_nested_phase_counts_for_both_and_once_in_the_throughput(
    monitor: ThroughputMonitor, clock: Clock
) -> None:
    with monitor.phase("outer"):
        clock.now += 1
        with monitor.phase("inner"):
            clock.now += 3
    monitor.record_samples(8)
    snapshot = snapshot_of(monitor)
    assert (snapshot["t_outer"], snapshot["t_inner"]) == (4, 3)
    assert snapshot["samples_per_sec"] == 2


def test_without_time_or_samples_the_rate_is_zero(monitor: ThroughputMonitor) -> None:
    assert snapshot_of(monitor)["samples_per_sec"] == 0.0


def test_memory_keys_are_always_there(monitor: ThroughputMonitor) -> None:
    snapshot = snapshot_of(monitor)
    assert (snapshot["gpu_mem_gb"], snapshot["gpu_mem_peak_gb"]) == (0.0, 0.0)


def test_disabled_monitoring_records_nothing_and_reads_no_clock() -> None:
    def clock() -> float:
        raise AssertionError("read while disabled")

    monitor = ThroughputMonitor("cuda", record_every_n_steps=None, clock=clock)
    assert not monitor.enabled
    for _ in monitor.iterate([1, 2]):
        with monitor.phase("work"):
            monitor.record_samples(3)
        assert monitor.step(0) is None
    monitor.reset()
    assert monitor.records == []


def test_a_phase_named_like_a_key_does_not_replace_it(monitor: ThroughputMonitor, clock: Clock) -> None:
    for name in ("step", "samples_per_sec", "gpu_mem_gb", "data"):
        with monitor.phase(name):
            clock.now += 1
    snapshot = snapshot_of(monitor, 7)
    assert snapshot["step"] == 7
    assert snapshot["t_step"] == 1


def test_snapshots_are_saved_as_json(monitor: ThroughputMonitor, tmp_path: Path) -> None:
    monitor.step(1)
    monitor.save(tmp_path / "stats.json")
    assert json.loads((tmp_path / "stats.json").read_text()) == monitor.records


def test_snapshots_are_saved_as_a_table_with_every_column(
    monitor: ThroughputMonitor, clock: Clock, tmp_path: Path
) -> None:
    monitor.step(1)
    with monitor.phase("late"):
        clock.now += 2
    monitor.step(2)
    monitor.save(tmp_path / "stats.csv")
    text = (tmp_path / "stats.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    assert [row["t_late"] for row in rows] == ["", "2.0"]


def test_another_suffix_is_refused_in_one_line(monitor: ThroughputMonitor, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="json or"):
        monitor.save(tmp_path / "stats.txt")


def test_an_impossible_interval_is_refused() -> None:
    with pytest.raises(UsageError, match="record_every_n_steps=0"):
        ThroughputMonitor("cpu", record_every_n_steps=0)


def test_it_can_be_pickled() -> None:
    monitor = ThroughputMonitor("cpu", record_every_n_steps=1)
    monitor.step(1)
    again = pickle.loads(pickle.dumps(monitor))
    assert again.records == monitor.records
    assert again.step(2) is not None


@given(st.lists(st.integers(0, 9), min_size=1), st.integers(1, 5))
def test_uneven_batches_and_any_step_numbers_never_raise(counts: list[int], every: int) -> None:
    clock = Clock()
    monitor = ThroughputMonitor("cpu", record_every_n_steps=every, clock=clock)
    for i, count in enumerate(counts):
        with monitor.phase("work"):
            clock.now += 1
        monitor.record_samples(count)
        monitor.step(i * 7 % 11)
    for record in monitor.records:
        assert record["samples_per_sec"] >= 0
