"""A MONAI trainer whose loop takes turns."""

from __future__ import annotations

from typing import Any

import _lockstep
import torch
from ignite.engine import Engine, Events
from monai.engines import SupervisedTrainer

_EPOCH = 2_000  # steps


class _Turns:
    """A handler that counts the steps."""

    def __init__(self, turn: _lockstep.Turn) -> None:
        self._turn = turn

    def attach(self, engine: Engine) -> None:
        engine.add_event_handler(Events.ITERATION_COMPLETED, self)

    def __call__(self, _engine: Engine) -> None:
        self._turn()


def train(turn: _lockstep.Turn, net: torch.nn.Module, batch: dict[str, torch.Tensor], **options: Any) -> None:
    """Train on one batch, again and again, until the process is ended.

    Args:
        turn: Called after every step.
        net: What is trained.
        batch: ``image`` and ``label``.
        options: Of the trainer.
    """
    SupervisedTrainer(
        device=torch.device("cpu"),
        max_epochs=1_000,
        train_data_loader=[batch] * _EPOCH,
        network=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=1e-4),
        train_handlers=[_Turns(turn)],
        **options,
    ).run()
