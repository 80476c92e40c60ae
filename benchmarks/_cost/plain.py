"""A plain loop."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import kit
import torch

steps, ballast, profiler = kit.asked()
model = kit.Net(ballast)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
times = kit.Steps()
around: AbstractContextManager[object] = nullcontext()
if profiler == "torch.profiler":
    around = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
with around:
    for x, y in torch.utils.data.DataLoader(kit.data(steps), batch_size=8):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        times.end()
times.tell()
