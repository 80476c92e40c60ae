"""Two ranks that average their gradients."""

from __future__ import annotations

import kit
import torch
import torch.distributed as dist

steps, ballast, _profiler = kit.asked()
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(kit.Net(ballast))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
times = kit.Steps()
for x, y in torch.utils.data.DataLoader(kit.data(steps), batch_size=8):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    times.end()
times.tell()
dist.barrier()
dist.destroy_process_group()
