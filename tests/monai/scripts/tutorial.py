"""MONAI's tutorial of training a 3D UNet with its engines, in substance: smaller volumes, fewer of them.

Dictionary transforms over NIfTI files, cached data sets, an evaluator with a sliding window, metrics,
a learning rate schedule, checkpoints by interval and by key metric, TensorBoard.
"""

import json
import logging
import sys
import warnings
from pathlib import Path

import nibabel as nib
import numpy as np
import torch

warnings.simplefilter("ignore")

from ignite.engine import Events  # noqa: E402
from ignite.metrics import Accuracy  # noqa: E402
from monai.data import create_test_image_3d  # noqa: E402
from monai.engines import SupervisedEvaluator, SupervisedTrainer  # noqa: E402
from monai.handlers import (  # noqa: E402
    CheckpointSaver,
    LrScheduleHandler,
    MeanDice,
    StatsHandler,
    TensorBoardImageHandler,
    TensorBoardStatsHandler,
    ValidationHandler,
    from_engine,
)
from monai.inferers import SimpleInferer, SlidingWindowInferer  # noqa: E402
from monai.transforms import (  # noqa: E402
    Activationsd,
    AsDiscreted,
    Compose,
    EnsureChannelFirstd,
    KeepLargestConnectedComponentd,
    LoadImaged,
    RandCropByPosNegLabeld,
    RandRotate90d,
    ScaleIntensityd,
)
from monai.utils import set_determinism  # noqa: E402

import monai  # noqa: E402 - it warns

KEYS = ["image", "label"]


def volumes(folder, count):
    folder.mkdir()
    made = []
    for i in range(count):
        image, label = create_test_image_3d(32, 32, 32, rad_max=8, num_seg_classes=1, channel_dim=-1)
        paths = {"image": folder / f"img{i}.nii.gz", "label": folder / f"seg{i}.nii.gz"}
        nib.save(nib.Nifti1Image(image, np.eye(4)), paths["image"])
        nib.save(nib.Nifti1Image(label, np.eye(4)), paths["label"])
        made.append({key: str(path) for key, path in paths.items()})
    return made


def main(out):
    logging.basicConfig(stream=sys.stdout, level=logging.INFO)
    set_determinism(seed=0)
    torch.set_num_threads(1)
    files = volumes(Path("volumes"), 8)
    load = [LoadImaged(KEYS), EnsureChannelFirstd(KEYS, channel_dim=-1), ScaleIntensityd("image")]
    crop = RandCropByPosNegLabeld(
        KEYS, label_key="label", spatial_size=[16, 16, 16], pos=1, neg=1, num_samples=4
    )
    train_data = monai.data.CacheDataset(
        files[:6],
        Compose([*load, crop, RandRotate90d(KEYS, prob=0.5, spatial_axes=[0, 2])]),
        cache_rate=0.5,
        progress=False,
    )
    val_data = monai.data.CacheDataset(files[6:], Compose(load), progress=False)
    train_loader = monai.data.DataLoader(train_data, batch_size=2, shuffle=True, num_workers=1)
    val_loader = monai.data.DataLoader(val_data, batch_size=1, num_workers=1)

    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    net = monai.networks.nets.UNet(3, 1, 1, channels=(4, 8, 16), strides=(2, 2), num_res_units=2).to(device)
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.1)
    post = Compose(
        [
            Activationsd("pred", sigmoid=True),
            AsDiscreted("pred", threshold=0.5),
            KeepLargestConnectedComponentd("pred", applied_labels=[1]),
        ]
    )
    accuracy = from_engine(["pred", "label"])
    evaluator = SupervisedEvaluator(
        device=device,
        val_data_loader=val_loader,
        network=net,
        inferer=SlidingWindowInferer(roi_size=(16, 16, 16), sw_batch_size=4, overlap=0.5),
        postprocessing=post,
        key_val_metric={"val_mean_dice": MeanDice(include_background=True, output_transform=accuracy)},
        additional_metrics={"val_acc": Accuracy(output_transform=accuracy)},
        val_handlers=[
            StatsHandler(name="train_log", output_transform=lambda _output: None),
            TensorBoardStatsHandler(log_dir="runs", output_transform=lambda _output: None),
            TensorBoardImageHandler(
                log_dir="runs", batch_transform=from_engine(KEYS), output_transform=from_engine(["pred"])
            ),
            CheckpointSaver(save_dir="runs", save_dict={"net": net}, save_key_metric=True),
        ],
    )
    loss_of = from_engine(["loss"], first=True)
    losses = []
    trainer = SupervisedTrainer(
        device=device,
        max_epochs=8,
        train_data_loader=train_loader,
        network=net,
        optimizer=optimizer,
        loss_function=monai.losses.DiceLoss(sigmoid=True),
        inferer=SimpleInferer(),
        postprocessing=post,
        key_train_metric={"train_acc": Accuracy(output_transform=accuracy)},
        train_handlers=[
            LrScheduleHandler(lr_scheduler=schedule, print_lr=True),
            ValidationHandler(validator=evaluator, interval=2, epoch_level=True),
            StatsHandler(tag_name="train_loss", output_transform=loss_of),
            TensorBoardStatsHandler(log_dir="runs", tag_name="train_loss", output_transform=loss_of),
            CheckpointSaver(
                save_dir="runs", save_dict={"net": net, "opt": optimizer}, save_interval=2, epoch_level=True
            ),
        ],
    )
    trainer.add_event_handler(
        Events.ITERATION_COMPLETED, lambda engine: losses.append(float(loss_of(engine.state.output)).hex())
    )
    trainer.run()
    found = {
        "losses": losses,
        "dice": float(evaluator.state.metrics["val_mean_dice"]).hex(),
        "train_acc": float(trainer.state.metrics["train_acc"]).hex(),
        "weights": float(sum(p.detach().double().sum() for p in net.parameters())).hex(),
        "saved": sorted(path.name.split("=")[0] for path in Path("runs").glob("*.pt")),
    }
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
