"""One model, two data loaders: ResNet-18 on JPEG files that are decoded while it trains.

``--profile baseline`` decodes in the training process; ``--profile optimized`` in workers that stay
alive over the epochs. Train both and let TraceML say what changed::

    traceml run --logs-dir logs --run-name lightning_baseline \
        examples/integrations/lightning_dataloading_bottleneck.py \
        --args --profile baseline --max-steps 300 --batch-size 64
    traceml run --logs-dir logs --run-name lightning_optimized \
        examples/integrations/lightning_dataloading_bottleneck.py \
        --args --profile optimized --max-steps 300 --batch-size 64

``--data-dir`` takes Imagenette as it is unpacked (``train/<class>/*.JPEG``). Without it a folder of
JPEG files is written once, cut from the photographs that scikit-learn ships. Needs ``lightning``,
``pillow`` and (without ``--data-dir``) ``scikit-learn``; torchvision's ResNet is used where it is
installed. The two calls of TraceML's in `main` are optional under ``traceml run``.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import lightning as L  # noqa: N812 - what its documentation calls it
from traceml_ai.integrations import lightning as traceml_lightning

CLASSES = 10
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


# -- data -----------------------------------------------------------------------------------


def write_photographs(folder: Path, files_per_class: int = 40) -> Path:
    """Write JPEG files, one folder a class, cut at random from two photographs."""
    if (folder / "complete").exists():
        return folder
    from sklearn.datasets import load_sample_images

    photographs = [Image.fromarray(image) for image in load_sample_images().images]
    draw = random.Random(0)
    for label in range(CLASSES):
        place = folder / "train" / f"class_{label}"
        place.mkdir(parents=True, exist_ok=True)
        for number in range(files_per_class):
            photograph = photographs[label % len(photographs)]
            width, height = photograph.size
            left, top = draw.randrange(width - 320), draw.randrange(height - 320)
            cut = photograph.crop((left, top, left + 320, top + 320)).rotate(36 * label)
            cut.resize((800, 800)).save(place / f"{number:04}.JPEG", quality=92)
    (folder / "complete").touch()
    return folder


class Photographs(Dataset[tuple[Tensor, int]]):
    """Images in one folder a class; each is read, decoded, cropped and flipped anew."""

    def __init__(self, folder: Path, size: int) -> None:
        places = sorted(place for place in folder.iterdir() if place.is_dir())
        kinds = {".jpeg", ".jpg", ".png"}
        self.files = [
            (file, label)
            for label, place in enumerate(places)
            for file in sorted(place.iterdir())
            if file.suffix.lower() in kinds
        ]
        self.size = size

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        file, label = self.files[index]
        with Image.open(file) as opened:
            image = opened.convert("RGB")
        side = int(min(image.size) * (0.5 + 0.5 * float(torch.rand(()))))
        left = int(float(torch.rand(())) * (image.width - side))
        top = int(float(torch.rand(())) * (image.height - side))
        image = image.resize((self.size, self.size), box=(left, top, left + side, top + side))
        if torch.rand(()) < 0.5:
            image = ImageOps.mirror(image)
        pixels = (np.asarray(image, dtype=np.float32) / 255 - MEAN) / STD
        return torch.from_numpy(pixels.astype(np.float32).transpose(2, 0, 1).copy()), label


def make_loader(data: Dataset[Any], profile: str, batch_size: int) -> DataLoader[Any]:
    """The loader of a profile."""
    options: dict[str, Any] = {"num_workers": 0}
    if profile == "optimized":
        workers = max(1, min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 4))
        options = {"num_workers": workers, "persistent_workers": True, "prefetch_factor": 4}
        options["pin_memory"] = torch.cuda.is_available()
    return DataLoader(data, batch_size=batch_size, shuffle=True, drop_last=True, **options)


# -- model ----------------------------------------------------------------------------------


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.around: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.around = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.around(x))


def make_resnet18(classes: int) -> nn.Module:
    """ResNet-18: torchvision's where there is one, else the same layers."""
    try:
        from torchvision.models import resnet18
    except ImportError:
        stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        blocks: list[nn.Module] = []
        inputs = 64
        for outputs in (64, 128, 256, 512):
            blocks += [Block(inputs, outputs, 1 if outputs == 64 else 2), Block(outputs, outputs, 1)]
            inputs = outputs
        return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))
    model: nn.Module = resnet18(num_classes=classes)
    return model


class Classifier(L.LightningModule):
    """ResNet-18, trained with SGD."""

    def __init__(self) -> None:
        super().__init__()
        self.net = make_resnet18(CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(x)
        return out

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:  # noqa: ARG002
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="ResNet-18 on JPEG files, with a slow or a fast data loader")
    parser.add_argument("--profile", choices=("baseline", "optimized"), default="baseline")
    parser.add_argument("--max-steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--image-size", type=int, default=128 if torch.cuda.is_available() else 32)
    parser.add_argument("--data-dir", type=Path, help="Imagenette, unpacked; else files are written")
    return parser.parse_args()


def main() -> None:
    options = parse()
    if not torch.cuda.is_available():
        torch.set_num_threads(1)  # the other processors are for decoding, in both profiles
    L.seed_everything(0)
    folder = options.data_dir or write_photographs(Path(tempfile.gettempdir()) / "traceml-photographs")
    data = Photographs(folder / "train", options.image_size)
    traceml_lightning.init()
    trainer = L.Trainer(
        accelerator="auto",
        devices=1,
        max_steps=options.max_steps,
        max_epochs=-1,
        logger=False,
        enable_checkpointing=False,
        callbacks=[traceml_lightning.TraceMLCallback()],
    )
    trainer.fit(Classifier(), make_loader(data, options.profile, options.batch_size))


if __name__ == "__main__":
    main()
