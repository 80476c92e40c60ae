# label: INCOMPLETE_DATA
import torch
from _parts import batches, sgd

model = torch.nn.Linear(4, 1)
optimizer = sgd(model)
for x, _ in batches(600, 4, features=4):
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()
