# label: INPUT_BOUND
# phase: input_wait
import torch
from _parts import batches, mlp, sgd, spin, update

import traceml


def collate(items):
    spin(0.012)
    return torch.utils.data.default_collate(items)


traceml.init(mode="auto")
model = mlp()
optimizer = sgd(model)
for x, y in batches(100, 8, collate_fn=collate):
    with traceml.trace_step(model):
        update(model, optimizer, x, y)
