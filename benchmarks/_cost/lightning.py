"""A Lightning trainer."""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path
from typing import Any

sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

import torch  # noqa: E402

import lightning  # noqa: E402

sys.path.append(str(Path(__file__).resolve().parent))

import kit  # noqa: E402

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
steps, ballast, profiler = kit.asked()
times = kit.Steps()


class Module(lightning.LightningModule):
    """The model."""

    def __init__(self) -> None:
        super().__init__()
        self.net = kit.Net(ballast)

    def training_step(self, batch: Any, _index: int) -> torch.Tensor:
        """The loss of a batch."""
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain gradient descent."""
        return torch.optim.SGD(self.parameters(), lr=1e-4)


class Times(lightning.Callback):
    """Notes each step's end."""

    def on_train_batch_end(self, *_args: Any) -> None:
        """A step ended."""
        times.end()


lightning.Trainer(
    accelerator="cpu",
    devices=1,
    max_epochs=1,
    callbacks=[Times()],
    profiler="simple" if profiler == "simple" else None,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
).fit(Module(), torch.utils.data.DataLoader(kit.data(steps), batch_size=8))
times.tell()
