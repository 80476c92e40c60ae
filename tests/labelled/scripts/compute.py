# label: COMPUTE_BOUND
# check: run.steps == 120
import traceml_ai as traceml
from _parts import batches, mlp, sgd, update

traceml.init(mode="auto")
model = mlp(width=768)
optimizer = sgd(model)
for x, y in batches(120):
    with traceml.trace_step(model):
        update(model, optimizer, x, y)
