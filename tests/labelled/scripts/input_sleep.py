# label: INPUT_BOUND
# phase: input_wait
from _parts import batches, mlp, sgd, update

model = mlp()
optimizer = sgd(model)
for x, y in batches(100, 8, sleep_s=0.002):
    update(model, optimizer, x, y)
