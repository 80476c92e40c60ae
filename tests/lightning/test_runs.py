"""Lightning runs that need a process of their own: how they end, ranks, what is declined, compilers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Runner = Callable[..., Any]
SCRIPTS = Path(__file__).with_name("scripts")


@pytest.mark.parametrize(
    ("end", "status", "aborted"),
    [("raise", "failed", 1), ("interrupt", "failed", 1), ("kill", "killed", 0)],
)
def test_a_fit_that_ends_badly_keeps_its_steps(
    end: str, status: str, aborted: int, run_script: Runner, tmp_path: Path
) -> None:
    run = run_script("ends.py", tmp_path, "lightning", end)
    assert run.code == (-9 if end == "kill" else 1)
    section = run.summary["run"]
    assert section["status"] == status
    assert section["steps"] == 4
    assert section["aborted_steps"] == aborted


@pytest.mark.parametrize("strategy", ["ddp", "ddp_fork"])
def test_lightnings_own_launchers_give_two_ranks_in_one_summary(
    strategy: str, run_script: Runner, tmp_path: Path
) -> None:
    run = run_script("ranks.py", tmp_path, "lightning", strategy)
    assert run.code == 0, run.out
    section = run.summary["run"]
    assert section["world_size"] == 2
    assert section["strategy"] == "DDPStrategy"
    rows = run.summary["step_time"]["ranks"]
    assert [row["rank"] for row in rows] == [0, 1]
    assert section["steps"] == 6
    phases = run.summary["step_time"]["phases"]
    # The wrapper's own call of the module is not forward: what training_step does beside it is not either.
    assert 10 <= phases["forward"]["median_ms"] < 20
    assert phases["residual"]["median_ms"] >= 20
    assert phases["between_steps"]["total_s"] > 0


@pytest.mark.flaky(reruns=4)  # torch's own end, see the script
def test_ranks_started_by_torchrun_are_lightnings_ranks(run_script: Runner, tmp_path: Path) -> None:
    run = run_script("ranks.py", tmp_path, "lightning", "ddp", options=("--nproc-per-node", "2"))
    assert run.code == 0, run.out
    assert run.summary["run"]["world_size"] == 2
    assert [row["rank"] for row in run.summary["step_time"]["ranks"]] == [0, 1]
    assert run.summary["run"]["steps"] == 6


def test_a_wrong_number_of_devices_is_lightnings_error(run_script: Runner, tmp_path: Path) -> None:
    run = run_script("ranks.py", tmp_path, "lightning", "ddp", options=("--nproc-per-node", "3"))
    assert run.code == 1
    assert "does not match the world size (3)" in run.out


@pytest.mark.parametrize(
    ("why", "says"),
    [
        ("strategy", "traceml: Lightning's Odd is not measured"),
        ("mode", "traceml: init() gave this process a mode of its own"),
        ("selective", "traceml: init() gave this process a mode of its own"),
    ],
)
def test_what_is_not_attached_to_is_said_once_and_trains_as_ever(
    why: str, says: str, run_both: Runner, tmp_path: Path
) -> None:
    traced, plain = run_both("declined.py", tmp_path, "lightning", why)
    assert (traced.code, plain.code) == (0, 0), traced.out
    assert traced.out.count(says) == 1
    assert traced.found == plain.found
    assert traced.summary["run"]["framework"] in (None, "pytorch")


def test_compiled_modules_are_measured_at_their_outer_call(run_both: Runner, tmp_path: Path) -> None:
    traced, plain = run_both("compiled.py", tmp_path, "lightning")
    for case, found in traced.found.items():
        assert "raised" not in found, found["raised"]
        assert found == plain.found[case]
    assert len(traced.found) == 3


def test_the_adapter_does_not_import_lightning() -> None:
    code = (
        "import sys, traceml_ai.integrations.lightning as t; "
        "assert not {'torch', 'lightning', 'pytorch_lightning'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_by_hand_without_a_collector_says_so_and_trains(run_script: Runner, tmp_path: Path) -> None:
    run = run_script("by_hand.py", tmp_path, "lightning", traced=False)
    assert run.code == 0, run.out
    assert run.out.count("no collector for this process") == 1
    assert run.found == {"global_step": 3}


def test_nothing_stays_in_the_import_system(run_both: Runner, tmp_path: Path) -> None:
    traced, plain = run_both("imports.py", tmp_path)
    assert traced.found == plain.found
