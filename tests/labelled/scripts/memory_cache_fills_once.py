# label: COMPUTE_BOUND
# never: MEMORY_CREEP
# The first of four epochs fills a cache of 100 MB.
import torch
from _parts import mlp, sgd, update


class Cached(torch.utils.data.Dataset):
    def __init__(self):
        self.kept = {}

    def __len__(self):
        return 100 * 32

    def __getitem__(self, index):
        if index not in self.kept:
            self.kept[index] = torch.ones(8192)
        return self.kept[index][:64], index % 10


model = mlp(width=512)
optimizer = sgd(model)
loader = torch.utils.data.DataLoader(Cached(), batch_size=32)
for _ in range(4):
    for x, y in loader:
        update(model, optimizer, x, y)
