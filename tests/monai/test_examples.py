"""The examples as a user runs them, and MONAI's own tutorial beside itself."""

from __future__ import annotations

import os
import re
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from scripted import run, run_both

EXAMPLES = Path(__file__).parents[2] / "examples"
TUTORIAL = Path(__file__).with_name("scripts") / "tutorial.py"
ALL = bool(os.environ.get("TRACEML_EVIDENCE"))


def test_the_minimal_example_counts_as_many_updates_as_the_summary_has_steps(tmp_path: Path) -> None:
    ended = run(EXAMPLES / "integrations" / "monai_minimal.py", tmp_path)
    assert ended.code == 0, ended.out
    counted = re.search(r"^updates: (\d+)$", ended.out, re.MULTILINE)
    assert counted is not None
    section = ended.summary["run"]
    assert section["steps"] == section["updates"] == int(counted[1]) == 36
    phases = ended.summary["step_time"]["phases"]
    for name in ("input_wait", "forward", "backward", "optimizer", "residual"):
        assert phases[name]["mean_ms"] > 0


def test_the_tutorial_trains_the_same_numbers_and_gets_a_sensible_verdict(tmp_path: Path) -> None:
    traced, plain = run_both(TUTORIAL, tmp_path)
    assert (traced.code, plain.code) == (0, 0), traced.out
    assert traced.found == plain.found
    assert len(traced.found["losses"]) == 24
    summary = traced.summary
    assert summary["run"]["steps"] == summary["run"]["updates"] == 24
    # Three steps an epoch with a worker that starts anew, volumes read again and again, and postprocessing
    # and validation of each: whichever is worst, computing is not.
    said = {finding["kind"] for finding in summary["findings"]}
    assert summary["diagnosis"]["kind"] in {
        "INPUT_BOUND",
        "EPOCH_START_STALL",
        "OUTSIDE_HEAVY",
        "RESIDUAL_HEAVY",
    }
    assert "OUTSIDE_HEAVY" in said
    assert summary["step_time"]["residual_by_cause"]["postprocessing"] > 1
    assert next(iter(summary["time"]["handlers"])) == "ValidationHandler"
    assert summary["time"]["between_by_cause"]["validation_s"] > 0
    assert summary["time"]["between_by_cause"]["checkpoint_s"] > 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_the_notebook_runs_its_settings_and_compares_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = EXAMPLES / "notebooks" / "monai_bottleneck.ipynb"
    settings = 6 if ALL else 2
    monkeypatch.setenv("SETTINGS", str(settings))
    monkeypatch.setenv("EPOCHS", "6" if ALL else "3")
    monkeypatch.setenv("LOGS_DIR", str(tmp_path / "logs"))
    notebook = nbformat.reads(path.read_text(), as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(path.parent)}}).execute()
    printed = "".join(out.get("text", "") for cell in notebook.cells for out in cell.get("outputs", []))
    names = sorted(folder.name for folder in (tmp_path / "logs").glob("spleen*"))
    assert len(names) == settings
    assert re.search(r"^spleen_1_baseline .* INPUT_BOUND$", printed, re.MULTILINE), printed
    for before, after in pairwise(names):
        assert f"== {before} -> {after}\n" in printed
    assert re.search(r"IMPROVEMENT|REGRESSION|SAME|UNKNOWN", printed), printed
