# label: INPUT_BOUND
# check: run.updates == 202
# check: step_time.phases["input_wait"].coverage > 0.95
# Two batches among two hundred are used a second time.
from _parts import batches, mlp, sgd, update

model = mlp()
optimizer = sgd(model)
for i, (x, y) in enumerate(batches(200, 8, sleep_s=0.001)):
    update(model, optimizer, x, y)
    if i in (70, 140):
        update(model, optimizer, x, y)
