# label: COMPUTE_BOUND
# check: run.steps == 100
# check: run.updates == 200
# Two updates per batch are one step.
import torch
from _parts import batches, mlp, sgd
from torch.nn import functional

generator, critic = mlp(features=16, classes=64), mlp(classes=1)
optimizer_g, optimizer_c = sgd(generator), sgd(critic)
ones, zeros = torch.ones(64, 1), torch.zeros(64, 1)
loss = functional.binary_cross_entropy_with_logits
for real, _ in batches(100):
    fake = generator(torch.randn(64, 16))
    optimizer_c.zero_grad()
    (loss(critic(real), ones) + loss(critic(fake.detach()), zeros)).backward()
    optimizer_c.step()
    optimizer_g.zero_grad()
    loss(critic(fake), ones).backward()
    optimizer_g.step()
