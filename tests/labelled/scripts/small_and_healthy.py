# label: COMPUTE_BOUND BALANCED INCOMPLETE_DATA RESIDUAL_HEAVY INPUT_BOUND
# severity: info
# About half a millisecond a step: shares may be named, nobody is alarmed.
from _parts import batches, mlp, sgd, update

import traceml

traceml.init(mode="auto")
model = mlp(width=64, depth=4, features=32)
optimizer = sgd(model)
for x, y in batches(1200, 8, features=32):
    with traceml.trace_step(model):
        update(model, optimizer, x, y)
