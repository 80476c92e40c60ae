"""What the cases share: a small module, a trainer, and what TraceML recorded of a case.

A case is a function that trains and returns what must be the same without TraceML. What it says of
the record it says with `Run.seen`, which is None in a process that is not measured.
"""

import contextlib
import json
import logging
import os
import sys
import traceback
import warnings
from pathlib import Path

import torch
from torch import nn

NAMESPACE = sys.argv[2]
if NAMESPACE == "lightning":
    from lightning.pytorch.callbacks import Callback
    from lightning.pytorch.plugins import Precision
    from lightning.pytorch.utilities.combined_loader import CombinedLoader

    import lightning as L
else:
    import pytorch_lightning as L
    from pytorch_lightning.callbacks import Callback
    from pytorch_lightning.plugins import Precision
    from pytorch_lightning.utilities.combined_loader import CombinedLoader

__all__ = [
    "NAMESPACE",
    "Callback",
    "CombinedLoader",
    "L",
    "Precision",
    "Small",
    "case",
    "fit",
    "loader",
    "main",
    "nn",
    "seen",
    "trainer",
    "within",
]

warnings.simplefilter("ignore")
for name in ("lightning.pytorch", "pytorch_lightning", "lightning.fabric", "lightning_fabric"):
    logging.getLogger(name).setLevel(logging.ERROR)
torch.set_num_threads(1)
TRACED = bool(os.environ.get("TRACEML_SPOOL"))
CASES = []


class Small(L.LightningModule):
    """A perceptron that keeps its losses."""

    def __init__(self, rate=1e-2):
        super().__init__()
        self.rate = rate
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
        self.losses = []

    def forward(self, x):
        return self.net(x)

    def loss(self, batch):
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y)
        self.losses.append(loss.item().hex())
        return loss

    def training_step(self, batch, batch_idx):
        return self.loss(batch)

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.rate, momentum=0.9)

    def result(self):
        return [self.losses, float(sum(p.detach().double().sum() for p in self.parameters())).hex()]


def loader(batches, size=4, **options):
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(batches * size, 8, generator=generator)
    y = torch.randint(0, 3, (batches * size,), generator=generator)
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=size, **options)


def trainer(**options):
    plain = {
        "accelerator": "cpu",
        "devices": 1,
        "max_epochs": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
        "default_root_dir": os.getcwd(),
    }
    return L.Trainer(**{**plain, **options})


def fit(model, train=None, val=None, *, ckpt_path=None, **options):
    one = trainer(**options)
    one.fit(model, train if train is not None else loader(6), val, ckpt_path=ckpt_path)
    return one


class Seen:
    """What was recorded since the case began."""

    def __init__(self, steps, facts, state):
        self.steps = steps
        self.facts = facts
        self.aborted = state[0]
        self.dropped = state[1]

    def column(self, name):
        return [step[name] for step in self.steps]

    def total_ms(self, name):
        return sum(self.column(name + "_ns")) / 1e6


def _counts():
    from traceml_ai.probe import session

    return session.current.st.aborted, session.current.facts.values["dropped_groups"]


def _records():
    from traceml_ai.probe import session
    from traceml_ai.schema.step import COLUMNS
    from traceml_ai.spool.reader import open_spool

    rows = [
        reader.read_rest() for reader in open_spool(Path(session.current.spool)) if reader.pid == os.getpid()
    ]
    return [dict(zip(COLUMNS, map(int, row), strict=True)) for block in rows for row in block]


_begun = [0, (0, 0)]


def begin():
    if TRACED:
        _begun[:] = len(_records()), _counts()


def seen():
    """What TraceML recorded of this case so far; None without it."""
    if not TRACED:
        return None
    from traceml_ai.probe import session

    state = [now - then for now, then in zip(_counts(), _begun[1], strict=True)]
    return Seen(_records()[_begun[0] :], session.current.facts.values, state)


def within(low, values, high):
    """Whether no value is below, and the best of them not above: a busy machine only adds."""
    return all(value >= low for value in values) and min(values) < high


def case(function):
    CASES.append(function)
    return function


def main():
    found = {}
    folder = Path.cwd()
    for function in CASES:
        L.seed_everything(3, verbose=False)
        (folder / function.__name__).mkdir(exist_ok=True)
        os.chdir(folder / function.__name__)
        try:
            with contextlib.redirect_stdout(sys.stderr):
                begin()
                found[function.__name__] = {"result": function()}
        except BaseException:  # noqa: BLE001 - reported as the case's
            found[function.__name__] = {"raised": traceback.format_exc()}
    Path(sys.argv[1]).write_text(json.dumps(found))
