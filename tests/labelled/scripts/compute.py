# label: COMPUTE_BOUND
# check: run.steps == 120
from _parts import batches, mlp, sgd, update

import traceml_ai as traceml

traceml.init(mode="auto")
model = mlp(width=768)
optimizer = sgd(model)
for x, y in batches(120):
    with traceml.trace_step(model):
        update(model, optimizer, x, y)
