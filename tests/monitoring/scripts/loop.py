"""A loop over a source of its own kind that accounts for its phases with a monitor."""

import json
import sys
from pathlib import Path

import torch
from torch import nn

from traceml_ai.monitoring import ThroughputMonitor


class Batch:
    """No tensor, list or dictionary: how many samples it holds can't be seen."""

    def __init__(self, rows: int) -> None:
        self.x = torch.randn(rows, 8)


KIND = sys.argv[2]
torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Linear(8, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
monitor = ThroughputMonitor("cpu", record_every_n_steps=10)
if KIND == "own":
    source = [Batch(4 + i % 3) for i in range(60)]
else:
    source = torch.utils.data.DataLoader([torch.randn(8) for _ in range(300)], batch_size=5)
losses = []
for step, batch in enumerate(monitor.iterate(source), start=1):
    x = batch.x if KIND == "own" else batch
    with monitor.phase("forward_backward"):
        loss = net(x).square().mean()
        loss.backward()
    with monitor.phase("update"):
        optimizer.step()
        optimizer.zero_grad()
    monitor.record_samples(len(x))
    monitor.step(step)
    losses.append(loss.item().hex())
found = {"losses": losses, "records": len(monitor.records), "keys": list(monitor.records[0])}
Path(sys.argv[1]).write_text(json.dumps(found))
