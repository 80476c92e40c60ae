"""Fails once, and is started again by torchrun. A user's code."""

import os

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
dist.init_process_group("gloo")
# Not TORCHELASTIC_RESTART_COUNT, which stays as it is on a node whose own rank did not fail.
first = not os.path.exists("failed-once")
steps = 40 if first else 25
model = nn.parallel.DistributedDataParallel(nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
data = torch.utils.data.TensorDataset(torch.randn(8 * steps, 64), torch.randint(0, 10, (8 * steps,)))
for x, y in torch.utils.data.DataLoader(data, batch_size=8):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
dist.barrier()
if first and dist.get_rank() == 1:
    open("failed-once", "w").close()
    raise RuntimeError("once")
dist.barrier()
dist.destroy_process_group()
