"""Real training under `traceml run`: every closed step is in the summary, however the run ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launch.tool import script, summary, traced

LOOP = """
    import os, signal, sys
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    def train(end):
        torch.manual_seed(0)
        torch.set_num_threads(1)
        model = torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step, (x,) in enumerate(DataLoader(TensorDataset(torch.randn(320, 8)), batch_size=4)):
            if step == 50:
                end()
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed"),
        ("os._exit(7)", "failed"),
        ("1 / 0", "failed"),
    ],
)
def test_a_run_that_ends_in_step_50_has_50_steps(tmp_path: Path, end: str, status: str) -> None:
    script(tmp_path, LOOP + f"\n    train(lambda: {end})\n")

    ended = traced(["train.py"], tmp_path)

    found = summary(tmp_path)["run"]
    assert (found["status"], found["steps"]) == (status, 50)
    assert ended.stderr.count("Traceback") == ("1 / 0" in end)


@pytest.mark.slow
def test_a_process_that_the_script_spawns_to_train_is_the_one_that_is_measured(tmp_path: Path) -> None:
    script(
        tmp_path,
        LOOP
        + """
    import time

    def work():
        train(lambda: time.sleep(0.5))

    if __name__ == "__main__":
        import multiprocessing
        child = multiprocessing.get_context("spawn").Process(target=work)
        child.start()
        child.join()
        sys.exit(child.exitcode)
    """,
    )

    ended = traced(["--json", "train.py"], tmp_path)

    assert ended.returncode == 0
    found: dict[str, Any] = json.loads(ended.stderr.splitlines()[-1])
    assert (found["run"]["status"], found["run"]["steps"]) == ("completed", 80)
    assert len(found["step_time"]["ranks"]) == 1
    assert found["process"]["main_rss_bytes"] > 1 << 20


@pytest.mark.slow
def test_no_more_steps_are_recorded_than_asked_for(tmp_path: Path) -> None:
    script(tmp_path, LOOP + "\n    train(lambda: None)\n")

    traced(["--trace-max-steps", "20", "train.py"], tmp_path)

    assert summary(tmp_path)["run"]["steps"] == 20
