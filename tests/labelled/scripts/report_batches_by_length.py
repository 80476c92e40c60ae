# from: https://github.com/SeanNaren/deepspeech.pytorch/issues/127
# label: SLOWDOWN
# check: primary.scope.phase in ("forward", "backward", None)
# Sorted by length, the batches of the first epoch become longer and longer.
import torch
from torch import nn

torch.set_num_threads(1)
model = nn.GRU(32, 64, batch_first=True)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
utterances = [torch.randn(length, 32) for length in range(8, 808, 2) for _ in range(4)]
loader = torch.utils.data.DataLoader(utterances, batch_size=4, collate_fn=nn.utils.rnn.pad_sequence)
for x in loader:
    optimizer.zero_grad()
    model(x.transpose(0, 1)[:, : x.shape[0] // 4 + 2])[0].square().mean().backward()
    optimizer.step()
