# label: COMPUTE_BOUND
# check: run.steps == 40
import torch
from _parts import batches, mlp
from torch.nn import functional

model = mlp()
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=4, history_size=4)
for x, y in batches(40):

    def closure(x=x, y=y):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        return loss

    optimizer.step(closure)
