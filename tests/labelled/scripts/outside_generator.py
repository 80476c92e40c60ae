# label: OUTSIDE_HEAVY INPUT_BOUND
# never: COMPUTE_BOUND
# Batches from a generator that sleeps: no loader is there to be seen.
import time

import torch
from _parts import mlp, sgd, update


def made():
    for _ in range(40):
        time.sleep(0.05)
        yield torch.randn(64, 64), torch.randint(10, (64,))


model = mlp()
optimizer = sgd(model)
for x, y in made():
    update(model, optimizer, x, y)
