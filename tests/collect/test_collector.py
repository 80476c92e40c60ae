from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from collect.recorded import MS, manifest, steps, writer
from traceml_ai.collect.collector import SUMMARY_EVERY_S, Collector
from traceml_ai.collect.files import Files
from traceml_ai.collect.inside import summarize_process
from traceml_ai.collect.notes import Notes
from traceml_ai.collect.publish import Publisher
from traceml_ai.schema.summary import Summary, decode
from traceml_ai.spool.runfolder import Manifest


class Clock:
    """A clock that moves when told to."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


class Run:
    """A collector with a run folder, a spool and a clock of its own."""

    def __init__(self, folder: Path, **known: object) -> None:
        self.folder, self.spool = folder / "run", folder / "spool"
        self.folder.mkdir()
        self.spool.mkdir()
        self.clock = Clock()
        self.notes = Notes()
        self.said = manifest(self.spool, **known)
        self.collector = self._collector(self.said)

    def _collector(self, said: Manifest) -> Collector:
        publisher = Publisher(self.folder, lambda: None, self.notes)
        return Collector(said, publisher, self.notes, clock=self.clock)

    def written(self) -> Summary | None:
        path = self.folder / "final_summary.json"
        return decode(path.read_bytes()) if path.exists() else None


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_a_summary_of_the_running_run_is_there_early(run: Run) -> None:
    steps(writer(run.spool), 30)
    run.collector.tick()
    assert run.written() is None

    run.clock.now_ns = 1500 * MS
    run.collector.tick()

    written = run.written()
    assert written is not None
    assert (written.run.status, written.run.exit_code, written.run.steps) == ("running", None, 29)


def test_the_summary_is_rewritten_every_few_seconds(run: Run) -> None:
    seen = []
    for second in range(1, 20):
        run.clock.now_ns = second * 1000 * MS
        run.collector.tick()
        written = run.written()
        assert written is not None
        seen.append(written.run.duration_s or 0.0)

    assert sorted(set(seen)) == [1.0 + SUMMARY_EVERY_S * i for i in range(4)]


def test_the_final_summary_holds_every_step_and_the_end(run: Run) -> None:
    steps(writer(run.spool), 30)
    run.collector.tick()

    returned = run.collector.finish("failed", 3, end_ns=400 * MS)

    written = run.written()
    assert written is not None
    assert written == returned
    assert (written.run.status, written.run.exit_code, written.run.steps) == ("failed", 3, 30)
    assert written.time.total_s == 0.4


def test_a_collector_that_never_ticked_still_finishes(run: Run) -> None:
    steps(writer(run.spool), 30)

    assert run.collector.finish("completed", 0, end_ns=MS) is not None


def test_pauses_grow_from_a_twentieth_of_a_second_to_the_interval(run: Run) -> None:
    pauses = []
    for elapsed_s in (0, 1, 8, 20, 40, 3600):
        run.clock.now_ns = elapsed_s * 1000 * MS
        pauses.append(run.collector.pause_s())

    assert pauses == [0.05, 0.05, 0.2, 0.5, 1.0, 1.0]


def test_an_interval_below_the_shortest_pause_is_held_at_it(tmp_path: Path) -> None:
    assert Run(tmp_path, interval_s=0.001).collector.pause_s() == 0.05


def test_the_started_process_is_sampled_before_any_has_a_log(run: Run) -> None:
    run.collector.tick()

    assert list(run.collector._series) == [os.getpid()]


def test_a_descendant_with_a_log_is_sampled_instead(run: Run) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        writer(run.spool, child.pid)
        run.collector.tick()

    assert list(run.collector._series) == [child.pid]


def test_the_id_of_a_process_that_is_not_ours_is_not_sampled(run: Run) -> None:
    writer(run.spool, 1)  # what a container's first process calls itself

    run.collector.tick()

    assert list(run.collector._series) == [os.getpid()]


def test_a_kill_for_lack_of_memory_is_said(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/vmstat").write_text("oom_kill 0\n")
    notes = Notes()
    collector = Collector(
        manifest(None, child_pid=None), Publisher(None, lambda: None, notes), notes, files=Files(tmp_path)
    )
    (tmp_path / "proc/vmstat").write_text("oom_kill 1\n")

    summary = collector.finish("killed", 137, end_ns=MS)

    assert summary is not None
    assert "out of memory: the kernel killed the training process" in summary.warnings


def test_a_command_line_that_is_no_text_does_not_cost_the_summary(tmp_path: Path) -> None:
    run = Run(tmp_path, command=["python", os.fsdecode(b"\xff.py")])

    summary = run.collector.finish("completed", 0, end_ns=MS)

    assert summary is not None
    assert summary.run.command == ["python", "\ufffd.py"]


def test_a_process_can_summarise_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRACEML_RUN_DIR", raising=False)
    steps(writer(tmp_path), 30)
    steps(writer(tmp_path, 1), 7)

    found = summarize_process(str(tmp_path), (0, 0))

    assert (found["run"]["status"], found["run"]["steps"]) == ("running", 30)


def test_a_process_that_summarises_itself_knows_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "base"
    folder.mkdir()
    manifest(tmp_path).write(folder)
    monkeypatch.setenv("TRACEML_RUN_DIR", str(folder))

    assert summarize_process(str(tmp_path), (0, 0))["run"]["command"] == ["python", "train.py"]


def test_the_logs_are_read_more_rarely_than_the_processes_are_sampled(run: Run) -> None:
    with mock.patch.object(run.collector._tail, "poll") as poll:
        for _ in range(21):  # within the second before the first summary, none is due
            run.clock.now_ns += 40 * MS
            run.collector.tick()
        assert poll.call_count == 1
        run.collector.refresh()  # somebody looks
        assert poll.call_count == 2
        run.clock.now_ns += 400 * MS  # the summary is due: of all there is
        run.collector.tick()
    assert poll.call_count == 3
