# label: COMM_BOUND   ranks: 2
# The gradient of a large embedding is sent whole, whatever few rows of it a batch touched.
import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.EmbeddingBag(60_000, 128), nn.Linear(128, 2)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
data = torch.utils.data.TensorDataset(torch.randint(0, 60_000, (320, 16)), torch.zeros(320, dtype=torch.long))
for x, y in torch.utils.data.DataLoader(data, batch_size=4):
    optimizer.zero_grad(set_to_none=True)
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
dist.destroy_process_group()
