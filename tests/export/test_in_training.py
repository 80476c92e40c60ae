"""A training script that tells its tracker of itself, under `traceml run`."""

from __future__ import annotations

import json
from pathlib import Path

from launch.tool import script, traced
from traceml_ai.schema.summary import decode

TRAINING = """
    import torch
    import traceml
    from torch.utils.data import DataLoader, TensorDataset
    from torch.utils.tensorboard.writer import SummaryWriter
    from traceml_ai.export import numbers, tensorboard

    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with SummaryWriter("events") as writer:
        for (x,) in DataLoader(TensorDataset(torch.randn(256, 8)), batch_size=4):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        told = tensorboard.log(writer)
    print(told, len(numbers(traceml.summary())) > 5)
"""


def test_a_script_tells_tensorboard_of_the_steps_it_has_made(tmp_path: Path) -> None:
    script(tmp_path, TRAINING)
    ended = traced(["--run-name", "base", "train.py"], tmp_path, env={"OMP_NUM_THREADS": "1"})
    assert (ended.returncode, ended.stdout) == (0, "True True\n")
    told = decode((tmp_path / "events/traceml/final_summary.json").read_bytes())
    final = json.loads((tmp_path / "logs/base/final_summary.json").read_bytes())
    assert told.run.status == "running"
    assert told.run.name == "base"
    assert told.run.steps == final["run"]["steps"] == 64
    assert (tmp_path / "events/traceml/report.html").stat().st_size > 1_000_000
