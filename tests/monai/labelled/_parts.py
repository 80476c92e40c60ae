"""Parts that the labelled MONAI scripts share. A user's code: nothing here knows of TraceML."""

import logging
import time
import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")

from monai.data import DataLoader, Dataset  # noqa: E402 - it warns
from monai.engines import SupervisedTrainer  # noqa: E402
from monai.transforms import Transform  # noqa: E402
from monai.utils import set_determinism  # noqa: E402

logging.disable(logging.WARNING)
torch.set_num_threads(1)
set_determinism(0)


def spin(seconds):
    """Keep a processor busy for so long; time in which another program ran does not count."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Slow(Transform):
    """A transform that takes its time."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __call__(self, item):
        time.sleep(self.seconds)
        return item


def items(count):
    image = torch.randn(1, 16, 16, 16)
    return [{"image": image, "label": torch.zeros(1, 16, 16, 16)} for _ in range(count)]


def loader(count=100, size=2, transform=None, **options):
    return DataLoader(Dataset(items(count * size), transform), batch_size=size, **options)


def network(width=8):
    """With its default width a step of some ten milliseconds on volumes of 16³."""
    return nn.Sequential(nn.Conv3d(1, width, 3, padding=1), nn.ReLU(), nn.Conv3d(width, 1, 3, padding=1))


class Handler:
    """A function as a handler."""

    def __init__(self, event, function):
        self.event, self.function = event, function

    def attach(self, engine):
        engine.add_event_handler(self.event, self)

    def __call__(self, engine):
        self.function(engine)


def trainer(data, net=None, **options):
    net = net or network()
    plain = {
        "device": torch.device("cpu"),
        "max_epochs": 1,
        "train_data_loader": data,
        "network": net,
        "optimizer": torch.optim.SGD(net.parameters(), lr=1e-3),
        "loss_function": nn.MSELoss(),
    }
    return SupervisedTrainer(**{**plain, **options})
