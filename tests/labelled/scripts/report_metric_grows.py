# from: https://github.com/Lightning-AI/torchmetrics/issues/1823
# label: SLOWDOWN RESIDUAL_HEAVY
# also: MEMORY_CREEP MEMORY_RISING
# check: primary.scope.phase == "residual"
# A metric is computed in every step over all that it has seen so far: heavy, and heavier all the time.
import torch
from _parts import batches, mlp, sgd

import traceml

traceml.init(mode="auto")
model = mlp()
optimizer = sgd(model)
seen = []
for x, y in batches(300):
    with traceml.trace_step(model):
        optimizer.zero_grad(set_to_none=True)
        scores = model(x)
        torch.nn.functional.cross_entropy(scores, y).backward()
        optimizer.step()
        seen.append(scores.detach().softmax(1))
        every = torch.cat(seen)
        curve = [(every[:, label].sort().values > 0.1).cumsum(0)[-1].item() for label in range(10)]
