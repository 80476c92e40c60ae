"""The smallest Lightning training: an ordinary script, nothing in it knows about TraceML.

A second or two on any computer::

    traceml run examples/integrations/lightning_minimal.py
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import lightning as L  # noqa: N812 - what its documentation calls it

CLASSES, FEATURES = 10, 64
Batch = tuple[Tensor, Tensor]


class Classifier(L.LightningModule):
    """A small perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(FEATURES, 512), nn.ReLU(), nn.Linear(512, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:  # noqa: ARG002 - Lightning's signature
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main() -> None:
    torch.set_num_threads(1)  # more is no faster for a model this small
    L.seed_everything(0)
    data = TensorDataset(torch.randn(12_800, FEATURES), torch.randint(0, CLASSES, (12_800,)))
    trainer = L.Trainer(accelerator="auto", devices=1, max_epochs=2, logger=False, enable_checkpointing=False)
    trainer.fit(Classifier(), DataLoader(data, batch_size=64, shuffle=True))


if __name__ == "__main__":
    main()
