# from: https://github.com/Lightning-AI/pytorch-lightning/issues/8857
# label: COMPUTE_BOUND BALANCED INCOMPLETE_DATA RESIDUAL_HEAVY INPUT_BOUND
# severity: info
# never: OUTSIDE_HEAVY
# A logistic regression: steps in which the interpreter does more than the model. Nobody is alarmed.
import torch

torch.set_num_threads(1)
model = torch.nn.Linear(10, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(24_000, 10), torch.rand(24_000, 1).round())
for x, y in torch.utils.data.DataLoader(data, batch_size=8):
    optimizer.zero_grad()
    torch.nn.functional.binary_cross_entropy_with_logits(model(x), y).backward()
    optimizer.step()
