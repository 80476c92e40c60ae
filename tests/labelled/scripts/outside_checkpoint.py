# label: OUTSIDE_HEAVY
# phase: between_steps
# check: primary.evidence["cause"] == "checkpoint"
import io

import torch
from _parts import batches, mlp, sgd, update

model = mlp()
optimizer = sgd(model)
average = {f"ema.{i}": torch.ones(500_000) for i in range(12)}
for i, (x, y) in enumerate(batches(120)):
    update(model, optimizer, x, y)
    if i % 4 == 3:
        torch.save({"model": model.state_dict(), "average": average}, io.BytesIO())
