"""The plain loop by itself, in the environment of the public tracer."""

from __future__ import annotations

import kit
import torch

steps, ballast = kit.asked()
model = kit.Net(ballast)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
times = kit.Steps()
for x, y in torch.utils.data.DataLoader(kit.data(steps), batch_size=8):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    times.end()
times.tell()
