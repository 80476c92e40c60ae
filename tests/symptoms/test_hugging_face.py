"""Hugging Face's trainer and Accelerate's loop have no adapter; what is inferred of them must be true.

Importing them takes long, so these run with ``TRACEML_EVIDENCE=1`` (`make evidence`).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from launch.tool import Ended, run_folder, traced

pytestmark = pytest.mark.skipif(not os.environ.get("TRACEML_EVIDENCE"), reason="part of `make evidence`")
SCRIPT = Path(__file__).parent / "scripts" / "hugging_face.py"


def run(case: str, folder: Path) -> tuple[Ended, dict[str, Any]]:
    ended = traced([str(SCRIPT), "--args", case], folder, env={"OMP_NUM_THREADS": "1"})
    summary = json.loads((run_folder(folder) / "final_summary.json").read_bytes())
    return ended, summary


def input_wait_s(summary: dict[str, Any]) -> float:
    return float(summary["step_time"]["phases"]["input_wait"]["total_s"])


def test_a_short_last_group_is_an_update_of_its_own(tmp_path: Path) -> None:
    ended, summary = run("short_last_group", tmp_path)

    assert ended.returncode == 0, ended.stderr
    assert (summary["run"]["updates"], summary["run"]["samples"]) == (30, 216)
    # Its batch was fetched with the group before.
    assert summary["run"]["steps"] == 30
    assert summary["run"]["microbatches"] == 54


def test_evaluating_after_every_step_is_validation_and_no_input_of_the_training(tmp_path: Path) -> None:
    ended, summary = run("evaluating_after_every_step", tmp_path)

    assert ended.returncode == 0, ended.stderr
    assert summary["run"]["steps"] == 40
    # 40 passes of 80 ms beside 40 batches of 4 ms.
    assert summary["time"]["between_by_cause"]["validation_s"] > 0.9 * 39 * 0.08
    assert 0.8 * 40 * 0.004 < input_wait_s(summary) < 3 * 40 * 0.004


def test_a_stream_without_a_length_is_trained_on(tmp_path: Path) -> None:
    ended, summary = run("stream", tmp_path)

    assert ended.returncode == 0, ended.stderr
    assert summary["run"]["steps"] == 60


def test_an_interrupt_leaves_the_steps_made(tmp_path: Path) -> None:
    ended, summary = run("interrupted", tmp_path)

    assert ended.returncode in {130, -2}  # as without TraceML
    assert summary["run"]["status"] == "interrupted"
    assert 9 <= summary["run"]["steps"] <= 11


def test_short_epochs_of_accelerate_have_a_step_for_each_update(tmp_path: Path) -> None:
    ended, summary = run("accelerate_short_epochs", tmp_path)

    assert ended.returncode == 0, ended.stderr
    run_ = summary["run"]
    assert (run_["steps"], run_["updates"], run_["microbatches"], run_["samples"]) == (20, 20, 36, 144)


def test_a_batch_fetched_ahead_is_waited_for_once(tmp_path: Path) -> None:
    ended, summary = run("accelerate", tmp_path)

    assert ended.returncode == 0, ended.stderr
    assert summary["run"]["steps"] == 50
    assert input_wait_s(summary) == pytest.approx(50 * 0.020, rel=0.3)
    kinds = {finding["kind"] for finding in summary["findings"]}
    assert not kinds & {"PERIODIC_STALL", "EPOCH_START_STALL", "SLOWDOWN"}
