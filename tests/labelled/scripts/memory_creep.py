# label: process MEMORY_CREEP
# process: main process
# A second loss is computed for the curve and kept, with its graph.
from _parts import batches, mlp, sgd, update
from torch.nn import functional

model = mlp()
optimizer = sgd(model)
curve = []
for x, y in batches(300, 128):
    update(model, optimizer, x, y)
    curve.append(functional.mse_loss(model(x), functional.one_hot(y, 10).float()))
