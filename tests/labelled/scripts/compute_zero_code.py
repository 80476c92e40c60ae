# label: COMPUTE_BOUND
# check: run.steps == 120
# check: run.mode == "inferred"
from _parts import batches, mlp, sgd, update

model = mlp(width=768)
optimizer = sgd(model)
for x, y in batches(120):
    update(model, optimizer, x, y)
