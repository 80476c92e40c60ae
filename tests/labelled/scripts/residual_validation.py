# label: RESIDUAL_HEAVY
# check: primary.evidence["validation_ms"] > 0.5 * primary.evidence["residual_ms"]
# An evaluation inside the marked step.
import torch
from _parts import batches, mlp, sgd, update

import traceml

traceml.init(mode="auto")
model = mlp()
optimizer = sgd(model)
held_out = batches(4, 64)
for x, y in batches(100):
    with traceml.trace_step(model):
        update(model, optimizer, x, y)
        model.eval()
        with torch.no_grad():
            for xv, _ in held_out:
                model(xv)
        model.train()
