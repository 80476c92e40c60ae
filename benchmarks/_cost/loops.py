"""The loops whose steps the cost table compares, by kind: without a tool first, and once more."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _lightning_turns
import _lockstep
import _monai_turns
import torch
import torch.distributed as dist

import lightning
from _cost import kit

NONE, AGAIN, OURS = "no tool", "no tool, once more", "TraceML"
Loops = dict[str, _lockstep.Loop]
_EPOCH, _EPOCHS = 2_000, 1_000  # steps; more than any process runs
_RANKS = 2

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def _all(loop: _lockstep.Loop, **others: _lockstep.Loop) -> Loops:
    return {NONE: loop, AGAIN: loop, OURS: _lockstep.traced(loop), **others}


def plain(ballast: int) -> Loops:
    """A loop written by hand."""

    def alone(turn: _lockstep.Turn, _folder: str) -> None:
        kit.train(kit.Net(ballast), _EPOCH, turn, epochs=_EPOCHS)

    def profiled(turn: _lockstep.Turn, folder: str) -> None:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            alone(turn, folder)

    return _all(alone, **{"torch.profiler": profiled})


class _Module(lightning.LightningModule):
    def __init__(self, ballast: int) -> None:
        super().__init__()
        self.net = kit.Net(ballast)

    def training_step(self, batch: Any, _index: int) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-4)


def with_lightning(ballast: int) -> Loops:
    """A Lightning trainer."""

    def alone(turn: _lockstep.Turn, _folder: str, profiler: str | None = None) -> None:
        loader = torch.utils.data.DataLoader(kit.data(_EPOCH), batch_size=8)
        _lightning_turns.train(turn, _Module(ballast), loader, profiler=profiler)

    def profiled(turn: _lockstep.Turn, folder: str) -> None:
        alone(turn, folder, "simple")

    return _all(alone, **{"Lightning's simple profiler": profiled})


def with_monai(ballast: int) -> Loops:
    """A MONAI trainer."""

    def alone(turn: _lockstep.Turn, _folder: str) -> None:
        batch = {"image": torch.randn(8, kit.WIDTH), "label": torch.randint(0, 10, (8,))}
        loss = torch.nn.CrossEntropyLoss()
        _monai_turns.train(turn, kit.Net(ballast), batch, loss_function=loss, decollate=False)

    return _all(alone)


def ddp(ballast: int) -> Loops:
    """Two ranks that average their gradients; the first has the turns, and the other waits for it."""

    def one_of_two(turn: _lockstep.Turn, folder: str, *, measured: bool) -> None:
        rank = 0 if os.fork() else 1
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(_RANKS))
        if measured:
            _lockstep.attach(folder)
        # The other rank ends when this one has: its next average fails.
        store = dist.FileStore(str(Path(folder) / "store"), _RANKS)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=_RANKS)
        model = torch.nn.parallel.DistributedDataParallel(kit.Net(ballast))
        kit.train(model, _EPOCH, turn if rank == 0 else lambda: None, epochs=_EPOCHS)

    def alone(turn: _lockstep.Turn, folder: str) -> None:
        one_of_two(turn, folder, measured=False)

    def traced(turn: _lockstep.Turn, folder: str) -> None:
        one_of_two(turn, folder, measured=True)

    return {NONE: alone, AGAIN: alone, OURS: traced}


ALL: dict[str, Callable[[int], Loops]] = {
    "plain": plain,
    "Lightning": with_lightning,
    "MONAI": with_monai,
    "DDP": ddp,
}
