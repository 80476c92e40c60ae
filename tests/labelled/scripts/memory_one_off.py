# label: COMPUTE_BOUND
# never: MEMORY_CREEP
# At two fifths of the run something large is loaded once.
import torch
from _parts import batches, mlp, sgd, update

model = mlp(width=512)
optimizer = sgd(model)
table = None
for i, (x, y) in enumerate(batches(350)):
    update(model, optimizer, x, y)
    if i == 140:
        table = torch.ones(50_000_000)
