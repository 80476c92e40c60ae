"""What measuring adds to a step of a small Lightning loop on the CPU.

    python benchmarks/lightning.py [--rounds N]

The base is a trainer with one more callback that does nothing (what Lightning's own dispatch of a callback
costs); how loops are compared is in ``_lockstep.py``.
"""

from __future__ import annotations

# This file has the name of what it measures.
import sys

sys.path.append(sys.path.pop(0))

import argparse
import logging
import warnings

import _lightning_turns
import _lockstep
import torch

import lightning

ROUNDS = 20
BLOCKS = 12
BUDGET_US = 25


class Tiny(lightning.LightningModule):
    """One small layer."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map ``(batch, 8)`` to ``(batch, 8)``."""
        return self.net(x)

    def training_step(self, batch: list[torch.Tensor], _index: int) -> torch.Tensor:
        """The loss of a batch."""
        return self(batch[0]).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain gradient descent."""
        return torch.optim.SGD(self.parameters(), lr=1e-3)


def train(turn: _lockstep.Turn, others: int) -> None:
    """Two samples a step, with so many callbacks that do nothing."""
    data = torch.utils.data.TensorDataset(torch.randn(200_000, 8))
    _lightning_turns.train(turn, Tiny(), torch.utils.data.DataLoader(data, batch_size=2), others=others)


def with_callback(turn: _lockstep.Turn, _folder: str) -> None:
    """The base."""
    train(turn, 1)


def alone(turn: _lockstep.Turn, _folder: str) -> None:
    """Lightning by itself."""
    train(turn, 0)


LOOPS: dict[str, _lockstep.Loop] = {
    "a callback that does nothing": with_callback,
    "the same again": with_callback,
    "no callback": alone,
    "traced": _lockstep.traced(alone),
}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows = _lockstep.measure(LOOPS, options.rounds, BLOCKS)
    print(f"a step with a callback that does nothing: {rows[0].base:.1f} us")
    print(f"{_lockstep.HEAD}   (budget {BUDGET_US})")
    for row in rows:
        print(_lockstep.line(row.kind, row))


if __name__ == "__main__":
    main()
