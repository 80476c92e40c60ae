# label: SLOWDOWN
# phase: forward
# check: 170 <= primary.scope.first_step <= 230
import torch
from _parts import batches, mlp, sgd, update
from torch import nn


class Drifting(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.calls = mlp(), 0

    def forward(self, x):
        self.calls += 1
        if self.calls > 200:
            with torch.no_grad():
                for _ in range(6):
                    self.net(x)
        return self.net(x)


model = Drifting()
optimizer = sgd(model)
for x, y in batches(700):
    update(model, optimizer, x, y)
