"""Parts that the labelled Lightning scripts share. A user's code: nothing here knows of TraceML."""

import time
import warnings

import torch
from torch import nn

import lightning as L

warnings.simplefilter("ignore")
torch.set_num_threads(1)
L.seed_everything(0, verbose=False)


def spin(seconds):
    """Keep a processor busy for so long; time in which another program ran does not count."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Items(torch.utils.data.Dataset):
    def __init__(self, count, sleep_s=0.0):
        self.count, self.sleep_s = count, sleep_s
        self.x = torch.randn(512, 64)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.sleep_s:
            time.sleep(self.sleep_s)
        return self.x[index % 512], index % 10


def batches(count, size=128, *, sleep_s=0.0, **options):
    return torch.utils.data.DataLoader(Items(count * size, sleep_s), batch_size=size, **options)


class Net(L.LightningModule):
    """A perceptron; with its defaults and batches of 128, a step of several milliseconds."""

    def __init__(self, width=640):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
        )

    def forward(self, x):
        return self.net(x)

    def loss(self, batch):
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def training_step(self, batch, batch_idx):
        return self.loss(batch)

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)


def fit(model, train, val=None, **options):
    plain = {
        "accelerator": "cpu",
        "devices": 1,
        "max_epochs": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = L.Trainer(**{**plain, **options})
    trainer.fit(model, train, val)
    return trainer
