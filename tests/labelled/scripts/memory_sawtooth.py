# label: COMPUTE_BOUND
# never: MEMORY_CREEP
# Predictions are collected for a metric and dropped every 80 steps.
import torch
from _parts import batches, mlp, sgd, update

model = mlp(width=512)
optimizer = sgd(model)
collected = []
for i, (x, y) in enumerate(batches(400)):
    update(model, optimizer, x, y)
    collected.append(torch.ones(200_000))
    if i % 80 == 79:
        collected.clear()
