"""The check that runs on a machine with an accelerator, as far as it goes without one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

CHECK = Path(__file__).resolve().parents[2] / "scripts" / "gpu_check.sh"
PATIENCE_S = 120
NO_DEVICE = 2


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(CHECK), *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device_it_says_so_in_a_line_and_has_an_exit_code_for_it() -> None:
    ended = run()

    assert ended.returncode == NO_DEVICE
    assert ended.stdout.count("\n") == 1
    assert "no CUDA device here: nothing was checked" in ended.stdout


def test_on_a_pretended_device_all_is_met_that_needs_no_real_one_and_it_says_so() -> None:
    ended = run("--fake", "--only", "inside")

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "this has NOT run on hardware" in ended.stdout
    assert "device time of backward" in ended.stdout
    assert "9 met, 0 missed, 4 not run" in ended.stdout
