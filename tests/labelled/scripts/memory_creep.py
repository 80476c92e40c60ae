# label: process MEMORY_CREEP
# process: main process
# Losses kept for the curve, each with its graph.
from _parts import batches, mlp, sgd, update

model = mlp(width=768)
optimizer = sgd(model)
losses = []
for x, y in batches(300, 128):
    losses.append(update(model, optimizer, x, y))
