"""Real synchronous jobs of several processes under `traceml run`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ranks.cases import BY_NAME, JOB, PATIENCE_S, run, stragglers

SCRIPTS = JOB.parent
SOON_S = 10.0  # from a rank's death to the summary that names it
# All of them run in benchmarks/ranks.py, five times each; here those that have a mechanism of their own.
HERE = [
    "none",
    "data",
    "backward",
    "in turn",
    "one step in fifty",
    "uneven inputs",
    "FSDP backward",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", HERE)
def test_the_late_rank_is_named_with_its_phase_and_nobody_where_there_is_none(
    name: str, tmp_path: Path
) -> None:
    case = BY_NAME[name]
    ended = run(case.args, tmp_path, world=case.world)
    assert ended.returncode == 0, ended.stderr
    assert case.problems(ended.summary) == []
    across = ended.summary.step_time.across_ranks
    assert across is not None
    assert across.waiting_measured
    assert f"· {case.world} ranks" in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (11, "SIGSEGV")])
def test_a_rank_that_is_killed_is_named_with_its_signal_and_its_last_step(
    number: int, name: str, tmp_path: Path
) -> None:
    out = tmp_path / "rank"
    ended = run(f"--steps 12 --signal {number} --late after --ms 20 --out {out}", tmp_path)
    assert ended.returncode == 1  # torchrun's own
    run_section = ended.summary.run
    assert run_section.status == "failed"
    assert run_section.ended_by == f"rank r1 died of {name} after 12 steps"
    assert f"rank r1 died of {name}" in ended.stderr
    row = next(row for row in ended.summary.step_time.ranks if row.rank == 1)
    assert (row.ended, row.steps) == (name, 12)
    died, told = (
        path.stat().st_mtime for path in (Path(f"{out}-died"), tmp_path / "job" / "final_summary.json")
    )
    assert told - died < SOON_S


def plain(args: list[str], folder: Path, *, script: Path = JOB, world: int = 2) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={world}", "--"]
    command = [*torchrun, str(script), *args]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=PATIENCE_S)


@pytest.mark.slow
@pytest.mark.parametrize("args", ["--steps 10 --kind buffers --accumulate 2", "--steps 10 --kind fsdp"])
def test_losses_and_weights_are_the_same_bit_by_bit(args: str, tmp_path: Path) -> None:
    plain([*args.split(), "--out", str(tmp_path / "plain")], tmp_path)
    assert run(f"{args} --out {tmp_path / 'traced'}", tmp_path).returncode == 0
    for rank in range(2):
        without: dict[str, Any] = torch.load(tmp_path / f"plain-{rank}.pt")
        traced: dict[str, Any] = torch.load(tmp_path / f"traced-{rank}.pt")
        assert without["losses"] == traced["losses"]
        assert all(torch.equal(a, b) for a, b in zip(without["state"], traced["state"], strict=True))


@pytest.mark.slow
def test_threads_variables_and_arguments_are_those_of_torchrun_itself(tmp_path: Path) -> None:
    script = SCRIPTS / "surroundings.py"
    words = ["--r=16", "--nproc-per-node", "7"]
    plain([str(tmp_path / "plain"), *words], tmp_path, script=script)
    run_without_steps([str(tmp_path / "traced"), *words], tmp_path, script)
    for rank in range(2):
        without = json.loads((tmp_path / f"plain-{rank}.json").read_text())
        traced = json.loads((tmp_path / f"traced-{rank}.json").read_text())
        assert without["threads"] == traced["threads"]
        assert without["argv"][1:] == traced["argv"][1:] == words
        assert without["path"] == traced["path"]
        for found in (without, traced):
            # Chosen anew for each launch.
            for name in ("MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "PYTHONPATH"):
                found["environ"].pop(name, None)
        assert without["environ"] == traced["environ"]


def run_without_steps(args: list[str], folder: Path, script: Path) -> None:
    command = [sys.executable, "-m", "traceml_ai", "run", "--logs-dir", str(folder), "--nproc-per-node=2"]
    subprocess.run(
        [*command, str(script), "--args", *args],
        cwd=folder,
        check=True,
        capture_output=True,
        timeout=PATIENCE_S,
    )


@pytest.mark.slow
def test_ranks_that_a_script_starts_itself_are_compared_as_well(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "traceml_ai", "run", "--logs-dir", str(tmp_path), "--run-name", "job"]
    ended = subprocess.run(
        [*command, str(SCRIPTS / "spawned.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    summary = json.loads((tmp_path / "job" / "final_summary.json").read_bytes())
    assert [row["rank"] for row in summary["step_time"]["ranks"]] == [0, 1]
    assert summary["diagnosis"]["scope"]["ranks"] == [1]
    assert re.search(r"^Ranks ", ended.stderr, re.MULTILINE)


@pytest.mark.slow
def test_a_job_that_is_restarted_is_two_attempts_and_not_one_blurred(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "traceml_ai", "run", "--logs-dir", str(tmp_path), "--run-name", "job"]
    torchrun = [
        "--",
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        "--max-restarts=1",
    ]
    # PyTorch's second attempt would otherwise read the first one's addresses from the store they share.
    ended = subprocess.run(
        [*command, *torchrun, str(SCRIPTS / "restarted.py")],
        cwd=tmp_path,
        env={**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert ended.returncode == 0, ended.stderr
    summary = json.loads((tmp_path / "job" / "final_summary.json").read_bytes())
    assert summary["run"]["attempts"] == 2
    assert [(row["rank"], row["steps"]) for row in summary["step_time"]["ranks"]] == [(0, 25), (1, 25)]
    assert any("attempt" in warning for warning in summary["warnings"])


def test_the_cases_cover_every_kind_of_delay() -> None:
    assert {case.persistence for case in BY_NAME.values()} == {"steady", "rotating", "one-off"}
    assert len(BY_NAME) >= 10
    assert callable(stragglers)
