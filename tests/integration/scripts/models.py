"""Models and data that a clean process can import too."""

import torch
from torch.utils.data import DataLoader, TensorDataset


class Inner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(8, 8)
        self.drop = torch.nn.Dropout(0.1)

    def forward(self, x):
        return self.drop(torch.relu(self.a(x)))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.out = torch.nn.Linear(8, 1)

    def forward(self, x):
        return self.out(self.inner(x))


def loader(batches=60, batch_size=4, **more):
    x = torch.randn(batches * batch_size, 8, generator=torch.Generator().manual_seed(3))
    return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=batch_size, **more)


def train(model, optimizer, data):
    """A plain loop; returns the losses as exact text."""
    losses = []
    for x, y in data:
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
    return losses
