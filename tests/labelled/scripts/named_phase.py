# label: BALANCED
# check: step_time.phases["augment"].share_pct > 30
# What the user named is not residual.
from _parts import batches, mlp, sgd, spin, update

import traceml

traceml.init(mode="auto")
model = mlp()
optimizer = sgd(model)
for x, y in batches(80):
    with traceml.trace_step(model):
        with traceml.phase("augment"):
            spin(0.008)
        update(model, optimizer, x, y)
