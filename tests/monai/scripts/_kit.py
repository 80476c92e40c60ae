"""What the cases share: a small network, a trainer, and what TraceML recorded of a case.

A case is a function that trains and returns what must be the same without TraceML. What it says of
the record it says with `seen`, which gives None in a process that is not measured.
"""

import contextlib
import itertools
import json
import logging
import os
import sys
import time
import traceback
import warnings
from pathlib import Path

import numpy as np
import torch
from ignite.engine import Events
from torch import nn

warnings.simplefilter("ignore")

from monai.engines import SupervisedTrainer  # noqa: E402 - it warns
from monai.engines.utils import IterationEvents  # noqa: E402
from monai.utils import set_determinism  # noqa: E402

logging.disable(logging.CRITICAL)  # Ignite and MONAI log the exceptions that cases raise
torch.set_num_threads(1)
TRACED = bool(os.environ.get("TRACEML_SPOOL"))
CASES = []
if TRACED:
    from traceml_ai.schema.step import EXCLUSIVE_COLUMNS as EXCLUSIVE


class Volumes(torch.utils.data.Dataset):
    """Small images and labels, always the same."""

    def __init__(self, count=24, sleep_s=0.0):
        generator = torch.Generator().manual_seed(7)
        self.image = torch.randn(count, 1, 8, 8, generator=generator)
        self.label = torch.randn(count, 1, 8, 8, generator=generator)
        self.sleep_s = sleep_s

    def __len__(self):
        return len(self.image)

    def __getitem__(self, index):
        if self.sleep_s:
            time.sleep(self.sleep_s)
        return {"image": self.image[index], "label": self.label[index]}


class Stream(torch.utils.data.IterableDataset):
    """The same without a length."""

    def __init__(self, count=24):
        self.inner = Volumes(count)

    def __iter__(self):
        return (self.inner[i] for i in range(len(self.inner)))


def loader(batches=6, size=4, sleep_s=0.0, **options):
    data = Volumes(batches * size, sleep_s / size)
    return torch.utils.data.DataLoader(data, batch_size=size, **options)


def stream(batches, size=4):
    return torch.utils.data.DataLoader(Stream(batches * size), batch_size=size)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, padding=1)
        self.out = nn.Conv2d(2, 1, 3, padding=1)

    def forward(self, x):
        return self.out(torch.relu(self.conv(x)))


class Losses:
    """Keeps each iteration's loss, bit by bit."""

    def __init__(self):
        self.values = []

    def attach(self, engine):
        engine.add_event_handler(Events.ITERATION_COMPLETED, self)

    def __call__(self, engine):
        output = engine.state.output
        loss = output[0]["loss"] if isinstance(output, list) else output["loss"]
        self.values.append(float(loss).hex())


class On:
    """A handler made of a function for one event."""

    def __init__(self, event, function):
        self.event, self.function = event, function

    def attach(self, engine):
        engine.add_event_handler(self.event, self)

    def __call__(self, engine):
        self.function(engine)


def sleeps(event, seconds):
    return On(event, lambda _engine: time.sleep(seconds))


class Trained:
    """A trainer and what it trained."""

    def __init__(
        self, data=None, *, kind=SupervisedTrainer, handlers=(), first=(), optimizer=None, **options
    ):
        self.net = Net()
        self.losses = Losses()
        make = optimizer or (lambda parameters: torch.optim.Adam(parameters, lr=1e-2))
        self.optimizer = make(self.net.parameters())
        plain = {
            "device": torch.device("cpu"),
            "max_epochs": 1,
            "train_data_loader": loader() if data is None else data,
            "network": self.net,
            "optimizer": self.optimizer,
            "loss_function": nn.MSELoss(),
            "train_handlers": [*first, self.losses, *handlers],
        }
        self.engine = kind(**{**plain, **options})

    def run(self):
        self.engine.run()
        return self

    def result(self):
        total = sum(p.detach().double().sum() for p in self.net.parameters())
        return [self.losses.values, float(total).hex(), self.engine.state.iteration]


def train(data=None, **options):
    return Trained(data, **options).run()


class Seen:
    """What was recorded since the case began."""

    def __init__(self, steps, facts, state, parts, handlers):
        self.steps = steps
        self.facts = facts
        self.aborted, self.dropped = state
        self.parts = parts  # ms
        self.handlers = handlers  # ms

    def column(self, name):
        return [step[name] for step in self.steps]

    def ms(self, name):
        return [value / 1e6 for value in self.column(name + "_ns")]

    def total_ms(self, name):
        return sum(self.ms(name))

    def flagged(self, bit):
        return [bool(step["flags"] & bit) for step in self.steps]


def _session():
    from traceml_ai.probe import session

    return session.current


def _counts():
    return _session().st.aborted, _session().facts.values["dropped_groups"]


def _books(name):
    return dict(_session().facts.values.get(name, {}))


def _records():
    from traceml_ai.schema.step import COLUMNS
    from traceml_ai.spool.reader import open_spool

    spool = Path(_session().spool)
    rows = [reader.read_rest() for reader in open_spool(spool) if reader.pid == os.getpid()]
    return [dict(zip(COLUMNS, map(int, row), strict=True)) for block in rows for row in block]


_begun = {}


def begin():
    if TRACED:
        _begun.update(
            steps=len(_records()),
            state=_counts(),
            parts=_books("residual_parts_ns"),
            handlers=_books("handlers_ns"),
        )


def seen():
    """What TraceML recorded of this case so far; None without it."""
    if not TRACED:
        return None
    state = [now - then for now, then in zip(_counts(), _begun["state"], strict=True)]
    steps = _records()[_begun["steps"] :]
    for earlier, later in itertools.pairwise(steps):
        assert later["begin_ns"] == earlier["close_ns"], "time was lost, or counted twice"
        assert min(later[name] for name in EXCLUSIVE) >= 0, later
    return Seen(
        steps,
        _session().facts.values,
        state,
        _since("residual_parts_ns", _begun["parts"]),
        _since("handlers_ns", _begun["handlers"]),
    )


def _since(name, before):
    spent = {key: (value - before.get(key, 0)) / 1e6 for key, value in _books(name).items()}
    return {key: value for key, value in spent.items() if value > 0}


def within(low, values, high):
    """Whether no value is below, and the best of them not above: a busy machine only adds."""
    return all(value >= low for value in values) and min(values) < high


def case(function):
    CASES.append(function)
    return function


def main():
    found = {}
    folder = Path.cwd()
    wanted = sys.argv[2:]
    for function in CASES:
        if wanted and function.__name__ not in wanted:
            continue
        set_determinism(3)
        np.random.seed(3)
        (folder / function.__name__).mkdir(exist_ok=True)
        os.chdir(folder / function.__name__)
        try:
            with contextlib.redirect_stdout(sys.stderr):
                begin()
                found[function.__name__] = {"result": function()}
        except BaseException:  # noqa: BLE001 - reported as the case's
            found[function.__name__] = {"raised": traceback.format_exc()}
    Path(sys.argv[1]).write_text(json.dumps(found))


__all__ = [
    "TRACED",
    "Events",
    "IterationEvents",
    "Losses",
    "Net",
    "On",
    "SupervisedTrainer",
    "Trained",
    "Volumes",
    "case",
    "loader",
    "main",
    "nn",
    "seen",
    "sleeps",
    "stream",
    "torch",
    "train",
    "within",
]
