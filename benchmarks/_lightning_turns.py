"""A Lightning trainer whose loop takes turns."""

from __future__ import annotations

from typing import Any

import _lockstep

import lightning


class _Turns(lightning.Callback):
    """Counts the steps."""

    def __init__(self, turn: _lockstep.Turn) -> None:
        self.on_train_batch_end = turn  # type: ignore[method-assign]


def train(
    turn: _lockstep.Turn,
    module: lightning.LightningModule,
    loader: object,
    *,
    others: int = 0,
    profiler: str | None = None,
) -> None:
    """Train until the process is ended.

    Args:
        turn: Called after every step.
        module: What is trained.
        loader: Its data.
        others: How many callbacks that do nothing the trainer has besides.
        profiler: Lightning's own, by name.
    """
    off = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    quiet: dict[str, Any] = dict.fromkeys(off, False)
    callbacks = [_Turns(turn), *(lightning.Callback() for _ in range(others))]
    lightning.Trainer(
        accelerator="cpu", devices=1, max_epochs=-1, callbacks=callbacks, profiler=profiler, **quiet
    ).fit(module, loader)
