"""What the timed calls of a plain step cost, each measured by itself where a training step makes it.

    python benchmarks/in_place.py [--steps N]

`overhead.py` subtracts whole loops, and what is left is ten microseconds of several hundred: it needs
minutes and a quiet machine. Here a real, unmeasured loop of 9 modules runs, and right behind its fetch,
forward, backward and update, with the caches as they left them, the same call is made once more with
nothing inside: bare, with two time stamps around it (and a record of fifteen integers behind the update),
or as TraceML times it. The clock is read around each; a figure is the median over the steps, less
that of the bare call. What the rest of the step loses to colder caches is not in it.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import weakref
from _thread import get_ident
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter_ns as clock
from typing import Any

import overhead
import torch

from traceml_ai.probe import patches, updating
from traceml_ai.probe.columns import IDLE
from traceml_ai.probe.state import StepState
from traceml_ai.probe.surroundings import sample_counter
from traceml_ai.schema.step import N_COLUMNS, RAW_COLUMNS
from traceml_ai.spool.writer import Identity, StepLogWriter

STEPS = 1500
CALLS = ("fetch", "forward", "backward", "update")
Four = tuple[Callable[[], Any], ...]


class Hollow:
    """A training step of which nothing is left but the calls."""

    def __init__(self) -> None:
        self.batch = [torch.zeros(8, overhead.WIDTH), torch.zeros(8)]
        self.parameter = torch.nn.Parameter(torch.zeros(1))

    def fetch(self, _loader: Any) -> Any:
        return self.batch

    def call(self, _model: Any, *_args: Any, **_kwargs: Any) -> Any:
        return self.batch

    def step(self, _optimizer: Any, *_args: Any, **_kwargs: Any) -> None:
        with torch.no_grad():
            self.parameter.add_(0)


def _backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: Any = None,
    create_graph: Any = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """As torch has it."""


class Thing:
    """A loader's iterator, a model or an optimizer."""

    training = True


def _calls(fetch: Any, call: Any, backward: Any, step: Any, things: list[Thing], x: Any) -> Four:
    """The four calls as a loop makes them."""
    iterator, model, optimizer = things
    return (
        lambda: fetch(iterator),
        lambda: call(model, x),
        lambda: backward(x, None, None, False, inputs=None),
        lambda: step(optimizer),
    )


def bare(hollow: Hollow, things: list[Thing]) -> Four:
    return _calls(hollow.fetch, hollow.call, _backward, hollow.step, things, hollow.batch[0])


def stamped(hollow: Hollow, things: list[Thing]) -> Four:
    """The least that measuring can be."""
    stamps = [0] * len(RAW_COLUMNS)
    log = memoryview(bytearray(8 * N_COLUMNS * 64)).cast("q")
    count = 0

    def around(inner: Callable[..., Any], at: int) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            stamps[at] = clock()
            out = inner(*args, **kwargs)
            stamps[at + 1] = clock()
            return out

        return timed

    def step(optimizer: Any) -> None:
        nonlocal count
        stamps[8] = clock()
        hollow.step(optimizer)
        stamps[9] = clock()
        at = count % 64 * N_COLUMNS
        for value in stamps:
            log[at] = value
            at += 1
        count += 1

    fetch, call, backward = around(hollow.fetch, 2), around(hollow.call, 4), around(_backward, 6)
    return _calls(fetch, call, backward, step, things, hollow.batch[0])


def traced(hollow: Hollow, things: list[Thing], folder: str) -> tuple[Four, StepState]:
    """As TraceML times them, in the middle of a run of plain steps."""
    log = StepLogWriter(folder, Identity(0, -1, -1, -1, 0, 0))
    st = StepState(
        ident=get_ident(),
        open_log=lambda: log,
        grad_enabled=torch.is_grad_enabled,
        batch_samples=sample_counter(torch.Tensor),
    )
    iterator, model, optimizer = things
    st.log, st.append, st.step, st.next_chore = log, log.append, 1, 1 << 62
    st.train_iterator = weakref.ref(iterator)
    st.targets = {id(model): weakref.ref(model)}
    st.plain_model, st.plain_optimizer = weakref.ref(model), weakref.ref(optimizer)
    st.plain_parameter = weakref.ref(hollow.parameter)
    st.make_room()
    st.stage = IDLE
    compiling = torch.compiler.is_dynamo_compiling
    module = type("Module", (), {"__call__": hollow.call})
    return _calls(
        patches.timed_next(st, hollow.fetch, get_ident),
        patches.timed_call(st, None, module, get_ident, compiling),
        patches.timed_backward(st, _backward, get_ident, compiling),
        updating.timed_step(st, hollow.step, get_ident, compiling),
        things,
        hollow.batch[0],
    ), st


def batches() -> Iterator[Any]:
    """Those of `overhead.py`, without an end."""
    data = torch.utils.data.TensorDataset(torch.randn(8000, overhead.WIDTH), torch.randint(0, 10, (8000,)))
    while True:
        yield from torch.utils.data.DataLoader(data, batch_size=8)


def measure(kinds: dict[str, Four], steps: int) -> dict[str, list[float]]:
    """Microseconds of each call beyond the first kind's, by kind; ``steps`` of each kind, in any order."""
    model = overhead.Net(9)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    spent: dict[str, list[list[int]]] = {kind: [[] for _ in CALLS] for kind in kinds}
    order = [kind for kind in kinds for _ in range(steps)]
    random.Random(0).shuffle(order)
    for kind, (x, y) in zip(order, batches(), strict=False):
        fetch, forward, backward, update = kinds[kind]
        into = spent[kind]
        into[0].append(_time(fetch))
        optimizer.zero_grad()
        out = model(x)
        into[1].append(_time(forward))
        loss = torch.nn.functional.cross_entropy(out, y)
        loss.backward()
        into[2].append(_time(backward))
        optimizer.step()
        into[3].append(_time(update))
    medians = {kind: [statistics.median(each) / 1e3 for each in into] for kind, into in spent.items()}
    first = medians[next(iter(kinds))]
    return {kind: [a - b for a, b in zip(each, first, strict=True)] for kind, each in medians.items()}


def _time(call: Callable[[], Any]) -> int:
    begin = clock()
    call()
    return clock() - begin


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=STEPS, help="of each kind")
    options = parser.parse_args()
    torch.set_num_threads(1)
    hollow, things = Hollow(), [Thing(), Thing(), Thing()]
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        ours, st = traced(hollow, things, folder)
        kinds = {
            "bare": bare(hollow, things),
            "bare again": bare(hollow, things),
            "two time stamps": stamped(hollow, things),
            "TraceML": ours,
        }
        found = measure(kinds, options.steps)
        if st.step != 1 + options.steps:
            raise SystemExit(
                f"{st.step - 1} of {options.steps} steps were plain: what was measured is another path"
            )
    print(overhead.machine())
    print(f"{'us beyond the bare call':<26}" + "".join(f"{call:>10}" for call in (*CALLS, "a step")))
    for kind, each in found.items():
        print(f"{kind:<26}" + "".join(f"{us:10.2f}" for us in (*each, sum(each))))


if __name__ == "__main__":
    main()
