# label: RESIDUAL_HEAVY
# phase: residual
import io
import time

import torch
from _parts import batches, mlp, sgd, update

import traceml

traceml.init(mode="auto")
model = mlp()
optimizer = sgd(model)
for x, y in batches(120, 8):
    with traceml.trace_step(model):
        update(model, optimizer, x, y)
        torch.save(model.state_dict(), io.BytesIO())
        time.sleep(0.008)
