# from: https://github.com/roboflow/rf-detr/pull/1409
# label: COMPUTE_BOUND
# phase: optimizer
# check: "optimizer" in primary.next
# One parameter group for each of several hundred small tensors.
import torch
from _parts import batches, update
from torch import nn

model = nn.Sequential(nn.Linear(64, 32), *[nn.Linear(32, 32) for _ in range(200)], nn.Linear(32, 10))
optimizer = torch.optim.AdamW([{"params": [p]} for p in model.parameters()], lr=1e-4)
for x, y in batches(100, 8):
    update(model, optimizer, x, y)
