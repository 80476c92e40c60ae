# label: COMPUTE_BOUND
# check: run.steps == 60
# A penalty on the gradient: autograd.grad counts as backward, and graphs are walked twice.
import torch
from _parts import batches, mlp, sgd

critic = mlp(classes=1)
optimizer = sgd(critic)
for real, _ in batches(60):
    mixed = (real + torch.randn_like(real)).requires_grad_()
    (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    optimizer.zero_grad()
    (-critic(real).mean() + 10 * (slope.norm(dim=1) - 1).pow(2).mean()).backward()
    optimizer.step()
