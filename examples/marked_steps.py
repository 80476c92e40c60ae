"""Mark the training step yourself instead of having it inferred.

Run it with ``traceml run examples/marked_steps.py``. Under plain ``python`` it trains as well, after
one warning that nobody is measuring.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader

import traceml

traceml.init(mode="auto")

torch.manual_seed(0)
digits = load_digits()
samples = [
    {"x": torch.tensor(image, dtype=torch.float32).flatten() / 16, "y": int(label)}
    for image, label in zip(digits.images, digits.target, strict=True)
]
dataloader = DataLoader(samples, batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for epoch in range(10):
    for batch in dataloader:
        with traceml.trace_step(model):
            optimizer.zero_grad(set_to_none=True)

            outputs = model(batch["x"])
            with traceml.phase("loss"):
                loss = criterion(outputs, batch["y"])

            loss.backward()
            optimizer.step()
    print(f"epoch {epoch + 1:2d}  loss {loss.item():.3f}")
