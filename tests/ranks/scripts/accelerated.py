"""Trains with Hugging Face's Accelerate and says what each process found. A user's code."""

import json
import os
import sys
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn

set_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
rank = accelerator.process_index
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
data = torch.utils.data.TensorDataset(torch.randn(960, 64), torch.randint(0, 10, (960,)))
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
losses = []
for x, y in loader:
    with accelerator.accumulate(model):
        loss = nn.functional.cross_entropy(model(x), y)
        if rank == 1:
            time.sleep(0.02)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    losses.append(loss.item())
kept = {name: value for name, value in os.environ.items() if not name.startswith("TRACEML_")}
found = {
    "environ": kept,
    "threads": torch.get_num_threads(),
    "losses": losses,
    "kind": str(accelerator.distributed_type),
}
with open(f"{sys.argv[1]}-{rank}.json", "w") as file:
    json.dump(found, file)
accelerator.wait_for_everyone()
accelerator.end_training()
sys.exit(int(sys.argv[2]))
