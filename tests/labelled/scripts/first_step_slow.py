# label: COMPUTE_BOUND
# check: step_time.warmup_steps >= 1
# check: step_time.step_ms < 3 * step_time.median_step_ms
# check: step_time.residual_pct < 20
# Five seconds of preparing in the first step.
import time

from _parts import batches, mlp, sgd, update

import traceml

traceml.init(mode="auto")
model = mlp(width=512)
optimizer = sgd(model)
for i, (x, y) in enumerate(batches(100)):
    with traceml.trace_step(model):
        if i == 0:
            time.sleep(5)
        update(model, optimizer, x, y)
