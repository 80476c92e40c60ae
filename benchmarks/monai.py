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
import _monai_turns
import torch

ROUNDS = 20
BLOCKS = 12
BUDGET_US = 20


def train(turn: _lockstep.Turn, *, decollate: bool) -> None:
    """A small net, two samples a step."""
    batch = {"image": torch.randn(2, 8), "label": torch.randn(2, 8)}
    loss = torch.nn.MSELoss()
    _monai_turns.train(turn, torch.nn.Linear(8, 8), batch, loss_function=loss, decollate=decollate)


def loops(*, decollate: bool) -> dict[str, _lockstep.Loop]:
    """What is compared."""

    def untraced(turn: _lockstep.Turn, _folder: str) -> None:
        train(turn, decollate=decollate)

    return {"untraced": untraced, "untraced again": untraced, "traced": _lockstep.traced(untraced)}


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
