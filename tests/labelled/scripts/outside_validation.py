# label: OUTSIDE_HEAVY
# phase: between_steps
# check: primary.evidence["cause"] == "validation"
import torch
from _parts import batches, mlp, sgd, update

model = mlp()
optimizer = sgd(model)
held_out = batches(25)
for i, (x, y) in enumerate(batches(120)):
    update(model, optimizer, x, y)
    if i % 10 == 9:
        model.eval()
        with torch.no_grad():
            for xv, _ in held_out:
                model(xv)
        model.train()
