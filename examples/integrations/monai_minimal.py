"""The smallest MONAI training: a UNet on synthetic images, made here; nothing is downloaded.

A few seconds on any computer::

    traceml run examples/integrations/monai_minimal.py

`init()` and `TraceMLHandler()` are optional under ``traceml run``, which attaches to a standard
``SupervisedTrainer`` of itself. The script counts its updates: as many as the summary has steps.
"""

from __future__ import annotations

import warnings

import torch

warnings.filterwarnings("ignore", category=FutureWarning)

from ignite.engine import Events  # noqa: E402
from monai.data import DataLoader, Dataset, create_test_image_2d  # noqa: E402
from monai.engines import SupervisedTrainer  # noqa: E402
from monai.losses import DiceLoss  # noqa: E402
from monai.networks.nets import UNet  # noqa: E402
from monai.transforms import Compose, EnsureChannelFirstd, ScaleIntensityd  # noqa: E402
from monai.utils import set_determinism  # noqa: E402

from traceml_ai.integrations import monai as traceml_monai  # noqa: E402

IMAGES, SIZE, BATCH, EPOCHS = 48, 64, 4, 3


def pairs() -> list[dict[str, torch.Tensor]]:
    """Images with bright discs in them, and where the discs are."""
    made = (create_test_image_2d(SIZE, SIZE, rad_max=10, noise_max=0.3) for _ in range(IMAGES))
    return [{"image": torch.as_tensor(i), "label": torch.as_tensor(label > 0)} for i, label in made]


def main() -> None:
    traceml_monai.init()
    torch.set_num_threads(1)  # more is no faster for images this small
    set_determinism(0)
    keys = ["image", "label"]
    transform = Compose([EnsureChannelFirstd(keys, channel_dim="no_channel"), ScaleIntensityd(keys)])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network = UNet(2, in_channels=1, out_channels=1, channels=(8, 16, 32), strides=(2, 2)).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    trainer = SupervisedTrainer(
        device=device,
        max_epochs=EPOCHS,
        train_data_loader=DataLoader(Dataset(pairs(), transform), batch_size=BATCH, shuffle=True),
        network=network,
        optimizer=optimizer,
        loss_function=DiceLoss(sigmoid=True),
        train_handlers=[traceml_monai.TraceMLHandler()],
    )
    updates: list[int] = []
    optimizer.register_step_post_hook(lambda *_: updates.append(1))
    trainer.add_event_handler(
        Events.EPOCH_COMPLETED,
        lambda engine: print(f"epoch {engine.state.epoch}: loss {loss_of(engine):.4f}"),
    )
    trainer.run()
    print(f"updates: {len(updates)}")


def loss_of(engine: SupervisedTrainer) -> float:
    """The last batch's loss; the trainer keeps one output for each image."""
    return float(engine.state.output[0]["loss"])


if __name__ == "__main__":
    main()
