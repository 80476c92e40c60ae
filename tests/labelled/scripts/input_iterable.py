# label: INPUT_BOUND
# A stream without a length.
import time

import torch
from _parts import mlp, sgd, update


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        for i in range(100 * 8):
            time.sleep(0.002)
            yield torch.randn(64), i % 10


model = mlp()
optimizer = sgd(model)
for x, y in torch.utils.data.DataLoader(Stream(), batch_size=8):
    update(model, optimizer, x, y)
