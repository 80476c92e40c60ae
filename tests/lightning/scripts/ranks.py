"""Two ranks in each of Lightning's own ways; forward is slow, and so is the loss.

A process that ends without destroying its group aborts now and then on a busy machine, traced or not
("terminate called without an active exception").
"""

import sys
import time

from _kit import Small, fit, loader, nn, torch


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 3)

    def forward(self, x):
        time.sleep(0.01)
        return self.inner(x)


class Two(Small):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def training_step(self, batch, batch_idx):
        time.sleep(0.02)
        return self.loss(batch)


if __name__ == "__main__":
    fit(Two(), loader(12), devices=2, strategy=sys.argv[3])
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
