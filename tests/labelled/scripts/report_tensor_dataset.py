# from: https://github.com/pytorch/pytorch/issues/106704
# label: INPUT_BOUND
# check: primary.evidence["producing"] != "waiting"
# A data set that is in memory already is read item by item and put together again for each batch.
import torch
from _parts import mlp, sgd, update

model = mlp(width=128)
optimizer = sgd(model)
data = torch.utils.data.TensorDataset(torch.randn(150 * 512, 64), torch.zeros(150 * 512, dtype=torch.long))
for x, y in torch.utils.data.DataLoader(data, batch_size=512, shuffle=True):
    update(model, optimizer, x, y)
