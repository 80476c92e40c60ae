# label: process MEMORY_CREEP
# process: loader workers
# also: INPUT_BOUND
import time

import torch
from _parts import mlp, sgd, update


class Remembering(torch.utils.data.Dataset):
    """Keeps what it decoded, and never meets the same item again."""

    def __init__(self):
        self.decoded = {}

    def __len__(self):
        return 800 * 16

    def __getitem__(self, index):
        time.sleep(0.0015)
        self.decoded[index] = torch.randn(12288)
        return self.decoded[index][:64].clone(), index % 10


if __name__ == "__main__":
    model = mlp(width=512)
    optimizer = sgd(model)
    for x, y in torch.utils.data.DataLoader(Remembering(), batch_size=16, num_workers=1):
        update(model, optimizer, x, y)
