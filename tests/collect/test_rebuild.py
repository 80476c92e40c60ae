from __future__ import annotations

import os
from pathlib import Path

import pytest

from collect.recorded import MS, facts, manifest, steps, writer
from traceml_ai.collect.rebuild import rebuild
from traceml_ai.errors import TraceMLError
from traceml_ai.spool.runfolder import birth_of

GONE = {"child_pid": 1 << 22, "child_birth": "1@boot"}


def test_the_summary_of_a_dead_run_holds_every_step(tmp_path: Path) -> None:
    end = steps(writer(tmp_path, 11), 30)

    summary = rebuild(manifest(tmp_path, **GONE))

    assert summary.run.steps == 30
    assert summary.time.total_s == end / 1e9
    assert summary.run.exit_code is None
    assert any("rebuilt from the step log" in warning for warning in summary.warnings)


@pytest.mark.parametrize(
    ("known", "status"),
    [({"clean_exit": True}, "completed"), ({"exception": "ValueError"}, "failed"), ({}, "killed")],
)
def test_how_it_ended_is_what_its_processes_could_say(
    tmp_path: Path, known: dict[str, object], status: str
) -> None:
    steps(writer(tmp_path, 11), 30)
    facts(tmp_path, 11, **known)

    assert rebuild(manifest(tmp_path, **GONE)).run.status == status


def test_a_run_that_still_trains_is_running(tmp_path: Path) -> None:
    steps(writer(tmp_path, 11), 30)

    summary = rebuild(manifest(tmp_path, child_pid=os.getpid(), child_birth=birth_of(os.getpid())))

    assert summary.run.status == "running"
    assert summary.run.steps == 29


def test_a_recycled_process_id_is_not_taken_for_the_run(tmp_path: Path) -> None:
    steps(writer(tmp_path, 11), 30)

    summary = rebuild(manifest(tmp_path, child_pid=os.getpid(), child_birth="1@boot"))

    assert summary.run.status == "killed"


def test_a_run_without_steps_can_be_rebuilt_too(tmp_path: Path) -> None:
    assert rebuild(manifest(tmp_path, **GONE)).step_time.diagnosis == "NO_DATA"


@pytest.mark.parametrize("spool", [None, Path("/no/such/folder")])
def test_without_a_step_log_the_reason_is_told(spool: Path | None) -> None:
    with pytest.raises(TraceMLError, match="the step log of run 'base' is gone"):
        rebuild(manifest(spool, start_ns=MS))
