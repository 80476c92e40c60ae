# from: https://github.com/pytorch/pytorch/issues/94131
# label: EPOCH_START_STALL
# also: INPUT_BOUND
# check: "persistent" not in primary.next
# A weighted sampler draws a whole epoch of a large data set before its first batch.
import torch
from _parts import Items, mlp, sgd, update

model = mlp()
optimizer = sgd(model)
sampler = torch.utils.data.WeightedRandomSampler(torch.rand(2_000_000), 2_000_000)
loader = torch.utils.data.DataLoader(Items(2_000_000), batch_size=64, sampler=sampler)
for _ in range(5):
    for i, (x, y) in enumerate(loader):
        update(model, optimizer, x, y)
        if i == 30:  # an epoch of fixed length
            break
