# label: COMPUTE_BOUND
# check: run.steps == 150
# check: 0.95 < step_time.phases["forward"].coverage <= 1
# One step calls the module's forward itself.
from _parts import batches, mlp, sgd, update

model = mlp(width=512)
optimizer = sgd(model)
for i, (x, y) in enumerate(batches(150)):
    update(model.forward if i == 80 else model, optimizer, x, y)
