"""What measuring adds to a step of a small MONAI loop on the CPU.

    python benchmarks/monai.py [--rounds N]

How loops are compared is in ``_lockstep.py``.
"""

from __future__ import annotations

# This file has the name of what it measures.
import sys

sys.path.append(sys.path.pop(0))

import argparse
import warnings

import _lockstep
import torch
from ignite.engine import Engine, Events
from monai.engines import SupervisedTrainer

ROUNDS = 20
BLOCKS = 12
BUDGET_US = 20


class Turns:
    """A handler that counts the steps."""

    def __init__(self, turn: _lockstep.Turn) -> None:
        self._turn = turn

    def attach(self, engine: Engine) -> None:
        """Called by the trainer."""
        engine.add_event_handler(Events.ITERATION_COMPLETED, self)

    def __call__(self, _engine: Engine) -> None:
        """A step ended."""
        self._turn()


def train(turn: _lockstep.Turn, *, decollate: bool) -> None:
    """Train until the process is ended."""
    net = torch.nn.Linear(8, 8)
    batch = {"image": torch.randn(2, 8), "label": torch.randn(2, 8)}
    SupervisedTrainer(
        device=torch.device("cpu"),
        max_epochs=1,
        train_data_loader=[batch] * 1_000_000,
        network=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=1e-3),
        loss_function=torch.nn.MSELoss(),
        train_handlers=[Turns(turn)],
        decollate=decollate,
    ).run()


def loops(*, decollate: bool) -> dict[str, _lockstep.Loop]:
    """What is compared."""

    def untraced(turn: _lockstep.Turn, _folder: str) -> None:
        train(turn, decollate=decollate)

    def traced(turn: _lockstep.Turn, folder: str) -> None:
        _lockstep.attach(folder)
        train(turn, decollate=decollate)

    return {"untraced": untraced, "untraced again": untraced, "traced": traced}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(f"{_lockstep.HEAD}   (budget {BUDGET_US})")
    for name, decollate in (("not decollated", False), ("decollated", True)):
        rows = _lockstep.measure(loops(decollate=decollate), options.rounds, BLOCKS)
        for row in rows:
            print(_lockstep.line(f"{name}, {row.base:.0f} us untraced: {row.kind}", row))


if __name__ == "__main__":
    main()
