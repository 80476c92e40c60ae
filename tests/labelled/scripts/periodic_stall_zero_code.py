# label: PERIODIC_STALL
# check: primary.evidence["period_steps"] == 25
# Every 25th step draws a plot.
import time

from _parts import batches, mlp, sgd, update

model = mlp()
optimizer = sgd(model)
for i, (x, y) in enumerate(batches(200)):
    update(model, optimizer, x, y)
    if i % 25 == 24:
        time.sleep(0.3)
