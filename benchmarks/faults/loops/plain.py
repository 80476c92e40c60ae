"""A plain loop; under torchrun or RANK of several, with DistributedDataParallel."""

import os
import time

from _record import SCRATCH_BYTES, Record

record = Record()

import torch
from torch import nn


class Items(torch.utils.data.Dataset):
    """As many samples as the steps need."""

    def __len__(self):
        return record.steps * 4

    def __getitem__(self, index):
        scratch = torch.empty(SCRATCH_BYTES // 4 if record.workers else 1)
        del scratch
        return torch.full((8,), float(index % 7))


torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
if int(os.environ.get("WORLD_SIZE", "1")) > 1:
    torch.distributed.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(
    Items(),
    batch_size=4,
    num_workers=record.workers,
    worker_init_fn=record.worker if record.workers else None,
)
for number, batch in enumerate(loader, 1):
    scratch = torch.empty(SCRATCH_BYTES, dtype=torch.uint8)
    optimizer.zero_grad()
    loss = (model(batch) - 1).square().mean()
    loss.backward()
    optimizer.step()
    record.step(number, loss.item())
    time.sleep(record.pause_s)
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
print("trained", flush=True)
record.done()
