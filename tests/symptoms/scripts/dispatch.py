"""The first rank reads every batch and hands it to the other: a user's code."""

import time

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo")


class Items(torch.utils.data.IterableDataset):
    """Batches that the first rank makes and broadcasts."""

    def __iter__(self):
        for _ in range(40):
            x = torch.empty(8, 64)
            if dist.get_rank() == 0:
                time.sleep(0.05)
                x.normal_()
            dist.broadcast(x, 0)
            yield x


model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for x in torch.utils.data.DataLoader(Items(), batch_size=None):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
