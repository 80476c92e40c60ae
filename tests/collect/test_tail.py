from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collect.recorded import facts, steps, writer
from traceml_ai.analyze.aggregate import RankAggregate
from traceml_ai.collect.notes import Notes
from traceml_ai.collect.tail import Tail
from traceml_ai.schema.step import RECORD_BYTES


def counts(tail: Tail) -> list[int]:
    return [given.aggregate.count for given in tail.inputs()]


def test_a_log_that_appears_late_is_read_from_its_first_step(tmp_path: Path) -> None:
    tail = Tail(tmp_path, Notes())
    tail.poll()
    steps(writer(tmp_path), 5)

    tail.finish()

    assert counts(tail) == [5]


def test_the_newest_step_counts_only_at_the_end(tmp_path: Path) -> None:
    log = writer(tmp_path)
    steps(log, 5)
    tail = Tail(tmp_path, Notes())

    tail.poll()
    assert counts(tail) == [4]  # a second optimizer may still belong to the fifth

    tail.finish()
    assert counts(tail) == [5]


def test_every_step_counts_once_however_often_it_is_looked(tmp_path: Path) -> None:
    log = writer(tmp_path, capacity=16)
    tail = Tail(tmp_path, Notes())
    end = 0
    for turn in range(10):
        end = steps(log, 7, begin_ns=end, first=turn * 7)
        tail.poll()
    tail.finish()

    (given,) = tail.inputs()
    assert given.aggregate.count == 70
    assert given.aggregate.last_close_ns == end


def test_several_processes_are_followed_each_with_its_facts(tmp_path: Path) -> None:
    for pid in (11, 12):
        steps(writer(tmp_path, pid), pid)
        facts(tmp_path, pid, rank=pid - 11)
    tail = Tail(tmp_path, Notes())
    tail.finish()

    assert tail.pids == [11, 12]
    assert counts(tail) == [11, 12]
    assert [given.facts["rank"] for given in tail.inputs()] == [0, 1]


def test_one_process_can_be_followed_alone(tmp_path: Path) -> None:
    for pid in (11, 12):
        steps(writer(tmp_path, pid), pid)
    tail = Tail(tmp_path, Notes(), only=12)
    tail.finish()

    assert counts(tail) == [12]


def test_read_segments_are_kept_up_to_a_size(tmp_path: Path) -> None:
    log = writer(tmp_path, capacity=16)
    tail = Tail(tmp_path, Notes(), kept_bytes=4 * (4096 + 16 * RECORD_BYTES))
    for turn in range(20):
        steps(log, 16, first=turn * 16)
        tail.poll()
    tail.finish()

    assert counts(tail) == [320]
    assert 1 <= len(list(tmp_path.glob("*.tlog"))) <= 6


def test_steps_that_are_no_longer_in_the_log_are_said_to_be_missing(tmp_path: Path) -> None:
    log = writer(tmp_path, 11, capacity=16)
    steps(log, 40)
    (tmp_path / "steps-11-00000.tlog").unlink()
    notes = Notes()
    tail = Tail(tmp_path, notes)
    tail.finish()

    assert counts(tail) == [24]
    assert notes.messages() == ["the first 16 steps of process 11 are no longer in the step log"]


def test_a_log_that_breaks_costs_what_follows_and_is_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    steps(writer(tmp_path, 11), 5)
    steps(writer(tmp_path, 12), 5)
    tail = Tail(tmp_path, Notes(said.append))
    tail.poll()
    (tmp_path / "steps-11-00000.tlog").write_bytes(b"nonsense")

    tail.poll()
    tail.finish()

    assert counts(tail) == [4, 5]
    assert len(said) == 1


def test_a_spool_that_is_gone_is_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    tail = Tail(tmp_path / "gone", Notes(said.append))
    tail.poll()
    tail.finish()

    assert counts(tail) == []
    assert said == [f"the step log is gone (No such file or directory: {tmp_path / 'gone'})"]


def test_without_a_spool_there_is_nothing_to_follow() -> None:
    tail = Tail(None, Notes())
    tail.poll()
    tail.touch()

    assert tail.inputs() == []


def test_a_training_that_is_faster_than_reading_does_not_keep_the_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = writer(tmp_path, capacity=1 << 16)
    end = steps(log, 5)
    taken = RankAggregate.add

    def add(self: RankAggregate, block: Any) -> None:
        nonlocal end
        taken(self, block)
        assert log.count < 1000, "it is read for ever"
        end = steps(log, 2, begin_ns=end, first=log.count)  # meanwhile

    monkeypatch.setattr(RankAggregate, "add", add)
    tail = Tail(tmp_path, Notes())
    tail.poll()

    assert counts(tail) == [4]
