# label: COMPUTE_BOUND
# never: OUTSIDE_HEAVY
import torch
from _parts import batches, mlp, sgd, update

model = mlp(width=768)
optimizer = sgd(model)
held_out = batches(3)
for i, (x, y) in enumerate(batches(120)):
    update(model, optimizer, x, y)
    if i % 40 == 39:
        model.eval()
        with torch.no_grad():
            for xv, _ in held_out:
                model(xv)
        model.train()
