# label: COMPUTE_BOUND
# check: run.steps == 40
# All of a small data set is the batch.
import torch
from _parts import batches, mlp
from torch.nn import functional

model = mlp()
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=4, history_size=4)
x, y = next(iter(batches(1)))
for _ in batches(40):

    def closure():
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        return loss

    optimizer.step(closure)
