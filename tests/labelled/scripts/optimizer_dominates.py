# label: COMPUTE_BOUND
# phase: optimizer
import torch
from _parts import batches, update
from torch import nn


class Lookup(nn.Module):
    """A large table of which a batch uses little; the update walks all of it."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Parameter(torch.randn(2_000_000)), nn.Linear(64, 10)

    def forward(self, x):
        return self.head(x + self.table[:64])


model = Lookup()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, foreach=False)
for x, y in batches(60):
    update(model, optimizer, x, y)
