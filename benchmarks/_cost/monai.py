"""A MONAI trainer."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

warnings.simplefilter("ignore")
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

import torch  # noqa: E402
from ignite.engine import Engine, Events  # noqa: E402
from monai.engines import SupervisedTrainer  # noqa: E402

sys.path.append(str(Path(__file__).resolve().parent))

import kit  # noqa: E402

steps, ballast, _profiler = kit.asked()
times = kit.Steps()


class Times:
    """Notes each step's end."""

    def attach(self, engine: Engine) -> None:
        """Be told of each iteration."""
        engine.add_event_handler(Events.ITERATION_COMPLETED, times.end)


net = kit.Net(ballast)
batch = {"image": torch.randn(8, kit.WIDTH), "label": torch.randint(0, 10, (8,))}
SupervisedTrainer(
    device=torch.device("cpu"),
    max_epochs=1,
    train_data_loader=[batch] * steps,
    network=net,
    optimizer=torch.optim.SGD(net.parameters(), lr=1e-4),
    loss_function=torch.nn.CrossEntropyLoss(),
    train_handlers=[Times()],
    decollate=False,
).run()
times.tell()
