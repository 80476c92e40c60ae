# from: https://github.com/activeloopai/deeplake/issues/1760
# label: EPOCH_START_STALL
# also: INPUT_BOUND
# Two workers fill their shuffle buffers before the first batch of every epoch.
import time

import torch
from _parts import mlp, sgd, update


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        buffer = []
        for i in range(640):
            buffer.append((torch.ones(64), i % 10))
            if len(buffer) < 200:
                time.sleep(0.002)
            else:
                yield buffer.pop()
        yield from buffer


model = mlp(width=512)
optimizer = sgd(model)
for _ in range(4):
    for x, y in torch.utils.data.DataLoader(Stream(), batch_size=32, num_workers=2):
        update(model, optimizer, x, y)
