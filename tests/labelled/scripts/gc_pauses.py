# label: GC_PAUSES
# A large heap of Python objects, walked after every other step because somebody feared for memory.
import gc

from _parts import batches, mlp, sgd, update

model = mlp()
optimizer = sgd(model)
index = [{"path": [i], "label": [i % 10]} for i in range(20_000)]
for i, (x, y) in enumerate(batches(100)):
    update(model, optimizer, x, y)
    if i % 2:
        gc.collect()
