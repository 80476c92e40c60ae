# label: PERIODIC_STALL
# phase: residual
# check: primary.evidence["period_steps"] == 20
import time

from _parts import batches, mlp, sgd, update

import traceml

traceml.init(mode="auto")
model = mlp()
optimizer = sgd(model)
for i, (x, y) in enumerate(batches(200)):
    with traceml.trace_step(model):
        update(model, optimizer, x, y)
        if i % 20 == 19:
            time.sleep(0.25)
