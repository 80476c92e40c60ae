# from: https://github.com/MoonshotAI/Kimi-Audio/issues/117
# label: process MEMORY_CREEP
# process: main process
# also: INPUT_BOUND
# __getitem__ is cached without a limit.
import functools

import torch
from _parts import mlp, sgd, update


class Recordings(torch.utils.data.Dataset):
    def __len__(self):
        return 600 * 8

    @functools.lru_cache(maxsize=None)  # noqa: B019, UP033 - the fault that is shown
    def __getitem__(self, index):
        spectrum = torch.full((20_000,), float(index))
        return spectrum[:64], index % 10


model = mlp(width=768)
optimizer = sgd(model)
for x, y in torch.utils.data.DataLoader(Recordings(), batch_size=8):
    update(model, optimizer, x, y)
