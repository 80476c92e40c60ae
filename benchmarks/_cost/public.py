"""The plain loop, marked for the public tracer as its own page says."""

from __future__ import annotations

import kit
import torch

import traceml_ai as traceml

traceml.init(mode="auto")
steps, ballast = kit.asked()
model = kit.Net(ballast)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
times = kit.Steps()
for x, y in torch.utils.data.DataLoader(kit.data(steps), batch_size=8):
    with traceml.trace_step(model):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    times.end()
times.tell()
