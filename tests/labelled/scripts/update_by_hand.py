# label: COMPUTE_BOUND BALANCED
# check: run.steps >= 145
# check: step_time.phases["optimizer"].mean_ms is None
# No optimizer object at all.
import torch
from _parts import batches, mlp
from torch.nn import functional

model = mlp(width=512)
for x, y in batches(150):
    functional.cross_entropy(model(x), y).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(1e-3 * parameter.grad)
            parameter.grad = None
