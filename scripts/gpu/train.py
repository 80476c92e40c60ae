"""A training whose bottleneck on an accelerator is known; run under `traceml run`.

python train.py (real|fake) (host_bound|h2d_bound|lightning|monai)
"""

from __future__ import annotations

import sys
import time
import warnings

KIND, WHAT = sys.argv[1:3]
STEPS = 60

import torch

torch.set_num_threads(1)
if KIND == "fake":
    from device import Pretended

    device = Pretended()
WHERE = "cuda" if KIND == "real" else "cpu"


def work(ms: float) -> None:
    """Keep the device busy for so long."""
    if KIND == "fake":
        device.sleep(ms)
    else:
        torch.cuda._sleep(round(ms * 1_500_000))


class Net(torch.nn.Module):
    """A layer; giving out its work takes the host so long, and doing it the device."""

    def __init__(self, host_ms: float, device_ms: float) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 1)
        self.host_ms, self.device_ms = host_ms, device_ms

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        until = time.perf_counter() + self.host_ms / 1000
        while time.perf_counter() < until:
            pass
        work(self.device_ms)
        return self.linear(x)  # type: ignore[no-any-return]


def plain(net: Net, batch_bytes: int) -> None:
    net = net.to(WHERE)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    x = torch.ones(4, 8, device=WHERE)
    if KIND == "fake":
        work(0.1)
    for batch in torch.utils.data.DataLoader(
        [torch.zeros(batch_bytes, dtype=torch.uint8)] * STEPS, batch_size=None
    ):
        batch.to("cuda")
        optimizer.zero_grad()
        loss = net(x).sum()
        loss.backward()
        optimizer.step()
        if KIND == "real":
            loss.item()
        else:
            device.finish()


def lightning() -> None:
    import lightning as L

    class Module(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net(0.2, 1.0)

        def training_step(self, batch: torch.Tensor, _index: int) -> torch.Tensor:
            return self.net(batch).sum()  # type: ignore[no-any-return]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    off = dict.fromkeys(
        ["logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"], False
    )
    loader = torch.utils.data.DataLoader([torch.ones(8)] * STEPS * 4, batch_size=4)
    accelerator = "gpu" if KIND == "real" else "cpu"
    trainer = L.Trainer(accelerator=accelerator, devices=1, max_epochs=1, **dict.fromkeys(off, False))
    trainer.fit(Module(), loader)


def monai() -> None:
    from monai.engines import SupervisedTrainer

    net = Net(0.2, 1.0).to(WHERE)
    batch = {"image": torch.ones(4, 8), "label": torch.ones(4, 1)}
    SupervisedTrainer(
        device=torch.device(WHERE),
        max_epochs=1,
        train_data_loader=[batch] * STEPS,
        network=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.01),
        loss_function=torch.nn.MSELoss(),
    ).run()


warnings.simplefilter("ignore")
if WHAT == "host_bound":
    plain(Net(6.0, 1.0), 1024)
elif WHAT == "h2d_bound":
    plain(Net(0.2, 1.0), 128 << 20 if KIND == "real" else 32 << 20)
else:
    {"lightning": lightning, "monai": monai}[WHAT]()
