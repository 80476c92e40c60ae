r"""A 3D UNet on patches of the Medical Segmentation Decathlon's spleen task; each flag changes one thing.

Two runs that differ in one flag measure that setting alone::

    traceml run --mode summary --logs-dir logs --run-name spleen_1_baseline \
        examples/integrations/monai_dataloading_bottleneck.py --args --data-dir data
    traceml run --mode summary --logs-dir logs --run-name spleen_2_workers \
        examples/integrations/monai_dataloading_bottleneck.py --args --data-dir data --num-workers 4
    traceml compare logs/spleen_1_baseline/final_summary.json logs/spleen_2_workers/final_summary.json

``--data-dir`` is the folder that holds ``Task09_Spleen`` (or that folder itself), as the Decathlon hands
it out. Without it a few volumes of the same kind are made and written as NIfTI files first, so that
loading, orientation, resampling and cropping are real either way.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

warnings.filterwarnings("ignore", category=FutureWarning)

import monai.data as md  # noqa: E402
from monai.engines import SupervisedTrainer  # noqa: E402
from monai.losses import DiceCELoss  # noqa: E402
from monai.networks.layers import Norm  # noqa: E402
from monai.networks.nets import UNet  # noqa: E402
from monai.transforms import (  # noqa: E402
    Compose,
    CropForegroundd,
    EnsureChannelFirstd,
    LoadImaged,
    Orientationd,
    RandCropByPosNegLabeld,
    ScaleIntensityRanged,
    Spacingd,
)
from monai.utils import set_determinism  # noqa: E402

KEYS = ["image", "label"]
MADE_SHAPE, MADE_SPACING_MM = (72, 72, 40), (1.2, 1.2, 2.5)
SPACING_MM = (1.5, 1.5, 2.0)


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, help="where Task09_Spleen is; without it volumes are made")
    parser.add_argument("--dataset", choices=("plain", "cache", "persistent"), default="plain")
    parser.add_argument("--loader", choices=("torch", "thread"), default="torch")
    parser.add_argument("--num-workers", type=int, default=0)
    parser.add_argument("--amp", action="store_true", help="mixed precision (on CUDA)")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--volumes", type=int, default=8, help="how many are read, or made")
    parser.add_argument("--patch", type=int, default=32, help="edge of a patch, in voxels")
    parser.add_argument("--channels", type=int, default=8, help="of the network's first level")
    parser.add_argument("--threads", type=int, default=0, help="of the computation; 0: as many as there are")
    return parser.parse_args(words)


def make_volume(folder: Path, number: int, rng: np.random.Generator) -> dict[str, str]:
    """Write one volume in Hounsfield units with a blob in it, and the blob's mask, as NIfTI files."""
    import nibabel

    axes = np.meshgrid(*(np.linspace(-1, 1, n) for n in MADE_SHAPE), indexing="ij")
    centre, radii = rng.uniform(-0.4, 0.4, 3), rng.uniform(0.25, 0.45, 3)
    blob = sum(((a - c) / r) ** 2 for a, c, r in zip(axes, centre, radii, strict=True)) < 1
    image = rng.normal(-20, 60, MADE_SHAPE) + 120 * blob
    affine = np.diag([*MADE_SPACING_MM, 1.0])
    paths = {key: str(folder / f"{key}_{number}.nii.gz") for key in KEYS}
    nibabel.save(nibabel.Nifti1Image(image.astype(np.int16), affine), paths["image"])
    nibabel.save(nibabel.Nifti1Image(blob.astype(np.uint8), affine), paths["label"])
    return paths


def find_volumes(folder: Path, most: int) -> list[dict[str, str]]:
    """The training volumes of the task, by name; hidden files beside them are not volumes."""
    task = folder if (folder / "imagesTr").is_dir() else folder / "Task09_Spleen"
    images = sorted(p for p in (task / "imagesTr").glob("*.nii.gz") if not p.name.startswith("."))
    if not images:
        raise SystemExit(f"{task}: no imagesTr/*.nii.gz there; give the folder that holds Task09_Spleen")
    return [{"image": str(p), "label": str(task / "labelsTr" / p.name)} for p in images[:most]]


def transforms(patch: int) -> Compose:
    """Loading and resampling, which a cache may keep, and then a random patch."""
    return Compose(
        [
            LoadImaged(KEYS),
            EnsureChannelFirstd(KEYS),
            ScaleIntensityRanged("image", -57, 164, 0.0, 1.0, clip=True),
            CropForegroundd(KEYS, source_key="image", allow_smaller=True),
            Orientationd(KEYS, axcodes="RAS", labels=None),
            Spacingd(KEYS, pixdim=SPACING_MM, mode=("bilinear", "nearest")),
            RandCropByPosNegLabeld(
                KEYS, label_key="label", spatial_size=(patch,) * 3, pos=1, neg=1, num_samples=2
            ),
        ]
    )


def dataset(args: argparse.Namespace, volumes: list[dict[str, str]], scratch: Path) -> Any:
    transform = transforms(args.patch)
    if args.dataset == "cache":
        return md.CacheDataset(volumes, transform, progress=False)
    if args.dataset == "persistent":
        return md.PersistentDataset(volumes, transform, cache_dir=scratch / "persistent")
    return md.Dataset(volumes, transform)


def train(args: argparse.Namespace, volumes: list[dict[str, str]], scratch: Path) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network = UNet(
        3,
        in_channels=1,
        out_channels=2,
        channels=tuple(args.channels * 2**level for level in range(3)),
        strides=(2, 2),
        norm=Norm.BATCH,
    ).to(device)
    kind = md.ThreadDataLoader if args.loader == "thread" else md.DataLoader
    loader = kind(dataset(args, volumes, scratch), batch_size=1, shuffle=True, num_workers=args.num_workers)
    trainer = SupervisedTrainer(
        device=device,
        max_epochs=args.epochs,
        train_data_loader=loader,
        network=network,
        optimizer=torch.optim.Adam(network.parameters(), lr=1e-3),
        loss_function=DiceCELoss(to_onehot_y=True, softmax=True),
        amp=args.amp and device.type == "cuda",
    )
    trainer.run()
    print(f"updates: {trainer.state.iteration}")


def main() -> None:
    args = parse()
    set_determinism(0)
    if args.threads:
        torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory(prefix="monai-example-") as folder:
        scratch = Path(folder)
        if args.data_dir is None:
            rng = np.random.default_rng(0)
            volumes = [make_volume(scratch, number, rng) for number in range(args.volumes)]
        else:
            volumes = find_volumes(args.data_dir, args.volumes)
        train(args, volumes, scratch)


if __name__ == "__main__":
    main()
