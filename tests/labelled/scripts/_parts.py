"""Parts that the labelled scripts share. A user's code: nothing here knows about TraceML."""

import time

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)


def mlp(width=384, depth=3, features=64, classes=10):
    """A perceptron: with its defaults and a batch of 64, a step of a few milliseconds."""
    layers = [nn.Linear(features, width), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, classes))


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=1e-3)


def spin(seconds):
    """Keep a processor busy for so long; time in which another program ran does not count."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Items(torch.utils.data.Dataset):
    """Random items; each may sleep or compute before it is there."""

    def __init__(self, count, *, features=64, sleep_s=0.0, spin_s=0.0):
        self.count, self.sleep_s, self.spin_s = count, sleep_s, spin_s
        self.x = torch.randn(512, features)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.sleep_s:
            time.sleep(self.sleep_s)
        if self.spin_s:
            spin(self.spin_s)
        return self.x[index % 512], index % 10


def batches(count, size=64, *, sleep_s=0.0, spin_s=0.0, features=64, **loader):
    """A loader of so many batches; the costs are per item."""
    data = Items(count * size, features=features, sleep_s=sleep_s, spin_s=spin_s)
    return torch.utils.data.DataLoader(data, batch_size=size, **loader)


def update(model, optimizer, x, y, lossf=nn.functional.cross_entropy):
    """The training step of most scripts."""
    optimizer.zero_grad(set_to_none=True)
    loss = lossf(model(x), y)
    loss.backward()
    optimizer.step()
    return loss
