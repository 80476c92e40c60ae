# label: INPUT_BOUND
# A stream without a length, fetched one batch ahead.
import time

import torch
from _parts import Net, fit


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        for i in range(100 * 8):
            time.sleep(0.002)
            yield torch.randn(64), i % 10


fit(Net(), torch.utils.data.DataLoader(Stream(), batch_size=8))
