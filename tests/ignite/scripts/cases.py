"""Engines that Ignite's helpers build, each with what must have been recorded of it."""

import contextlib
import json
import logging
import os
import sys
import time
import traceback
from pathlib import Path

import torch
from ignite.engine import (
    DeterministicEngine,
    Engine,
    Events,
    create_supervised_evaluator,
    create_supervised_trainer,
)
from ignite.handlers import ModelCheckpoint
from ignite.metrics import Loss
from torch import nn

from traceml_ai.integrations import ignite as traceml_ignite

logging.disable(logging.CRITICAL)
torch.set_num_threads(1)
TRACED = bool(os.environ.get("TRACEML_SPOOL"))
traceml_ignite.init()
CASES = []


def case(function):
    CASES.append(function)
    return function


class Pairs(torch.utils.data.Dataset):
    def __init__(self, count, sleep_s):
        generator = torch.Generator().manual_seed(5)
        self.x = torch.randn(count, 8, generator=generator)
        self.y = torch.randn(count, 1, generator=generator)
        self.sleep_s = sleep_s

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        if self.sleep_s:
            time.sleep(self.sleep_s)
        return self.x[index], self.y[index]


def loader(batches=6, size=4, sleep_s=0.0, **options):
    return torch.utils.data.DataLoader(Pairs(batches * size, sleep_s / size), batch_size=size, **options)


class Made:
    """A trainer, its model, and its losses bit by bit."""

    def __init__(self, handler=True, **options):
        torch.manual_seed(3)
        self.net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-2)
        self.losses = []
        self.engine = create_supervised_trainer(self.net, self.optimizer, nn.MSELoss(), **options)
        self.engine.add_event_handler(
            Events.ITERATION_COMPLETED, lambda engine: self.losses.append(engine.state.output.hex())
        )
        if handler:
            traceml_ignite.TraceMLHandler().attach(self.engine)

    def run(self, data=None, **options):
        self.engine.run(loader() if data is None else data, **options)
        return self

    def result(self):
        return [self.losses, float(self.net[0].weight.double().sum()).hex()]


def _records():
    from traceml_ai.probe import session
    from traceml_ai.schema.step import COLUMNS
    from traceml_ai.spool.reader import open_spool

    readers = open_spool(Path(session.current.spool))
    rows = [reader.read_rest() for reader in readers if reader.pid == os.getpid()]
    return [dict(zip(COLUMNS, map(int, row), strict=True)) for block in rows for row in block]


_begun = [0]


def seen(name=None):
    """The steps of this case, or one column of them; None without TraceML."""
    if not TRACED:
        return None
    steps = _records()[_begun[0] :]
    return steps if name is None else [step[name] for step in steps]


# -- cases ------------------------------------------------------------------------------------


@case
def one_step_is_one_iteration():
    made = Made().run(max_epochs=2)
    if seen() is not None:
        assert seen("updates") == seen("microbatches") == seen("fetches") == [1] * 12
        assert seen("samples") == [4] * 12
        assert seen("global_step") == list(range(1, 13))
        for phase in ("input_wait", "forward", "backward", "optimizer", "residual_other"):
            assert all(v > 0 for v in seen(phase + "_ns")), phase
    return made.result()


@case
def accumulated_iterations_are_one_step():
    made = Made(gradient_accumulation_steps=4).run(loader(10), max_epochs=2)
    if seen() is not None:
        assert seen("microbatches") == [4] * 5
        assert seen("updates") == [1] * 5
    return made.result()


@case
def a_group_that_is_never_updated_is_dropped():
    made = Made(gradient_accumulation_steps=4).run(loader(6))
    if seen() is not None:
        assert seen("microbatches") == [4]
    return made.result()


@case
def waiting_for_a_batch_is_input_wait():
    made = Made().run(loader(4, sleep_s=0.008))
    if seen() is not None:
        assert min(seen("input_wait_ns")) >= 8e6
    return made.result()


@case
def evaluators_and_checkpoints_are_between_steps_and_named():
    made = Made()
    evaluator = create_supervised_evaluator(made.net, {"loss": Loss(nn.MSELoss())})

    def validates(_engine):
        evaluator.run(loader(3, sleep_s=0.006))

    made.engine.add_event_handler(Events.ITERATION_COMPLETED(every=2), validates)
    saver = ModelCheckpoint("saved", "net", n_saved=1, require_empty=False)
    made.engine.add_event_handler(Events.ITERATION_COMPLETED(every=3), saver, {"net": made.net})
    made.run()
    if seen() is not None:
        from traceml_ai.probe import session

        assert len(seen()) == 6
        assert seen("fetches") == [1] * 6
        assert sum(seen("between_validation_ns")) >= 2 * 18e6
        assert sum(seen("between_checkpoint_ns")) > 0
        assert {"validates", "ModelCheckpoint"} <= set(session.current.facts.values["handlers_ns"])
    return [made.result(), evaluator.state.metrics["loss"]]


@case
def a_function_of_its_own_is_measured_batch_by_batch():
    torch.manual_seed(3)
    net = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    losses = []

    def update(_engine, batch):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())

    engine = Engine(update)
    traceml_ignite.TraceMLHandler().attach(engine)
    engine.run(loader(5))
    if seen() is not None:
        assert seen("updates") == seen("microbatches") == [1] * 5
        assert all(v > 0 for v in seen("forward_ns"))
    return losses


class Trains:
    """A model that is out of sight of the update function's closure."""

    def __init__(self):
        torch.manual_seed(3)
        self.net = nn.Linear(8, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-2)
        self.losses = []

    def update(self, _engine, batch):
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item().hex())


@case
def a_model_that_is_not_in_sight_is_found_by_its_gradients():
    trains = Trains()
    engine = Engine(trains.update)
    traceml_ignite.TraceMLHandler().attach(engine)
    engine.run(loader(8))
    if seen() is not None:
        assert len(seen()) == 8
        assert all(v > 0 for v in seen("forward_ns")[2:])
    return trains.losses


@case
def a_deterministic_engine_is_measured():
    made = Made(deterministic=True)
    assert isinstance(made.engine, DeterministicEngine)
    made.run(loader(4, shuffle=True), max_epochs=2)
    if seen() is not None:
        assert len(seen()) == 8
    return made.result()


@case
def a_run_without_data_has_no_input_wait():
    made = Made(prepare_batch=lambda *_args, **_options: (torch.ones(2, 8), torch.ones(2, 1)))
    made.engine.run(epoch_length=4)
    if seen() is not None:
        assert seen("fetches") == [0] * 4
        assert seen("updates") == [1] * 4
    return made.result()


@case
def a_second_run_and_an_exception_leave_nothing_behind():
    made = Made()

    def fails(engine):
        if engine.state.iteration == 3 and engine.state.epoch == 1:
            raise RuntimeError

    made.engine.add_event_handler(Events.ITERATION_STARTED, fails)
    with contextlib.suppress(RuntimeError):
        made.run()
    other = Made().run(loader(2))
    assert {type(entries) for entries in made.engine._event_handlers.values()} == {list}
    hooks = (
        torch.optim.optimizer if hasattr(torch.optim, "optimizer") else sys.modules["torch.optim.optimizer"]
    )
    assert not hooks._global_optimizer_pre_hooks
    assert not hooks._global_optimizer_post_hooks
    if seen() is not None:
        assert seen("updates") == [1] * 4
    return [made.result(), other.result()]


@case
def a_second_handler_and_an_evaluator_are_refused():
    made = Made()
    traceml_ignite.TraceMLHandler().attach(made.engine)
    evaluator = create_supervised_evaluator(made.net)
    traceml_ignite.TraceMLHandler().attach(evaluator)
    evaluator.run(loader(2))
    made.run(loader(3))
    if seen() is not None:
        assert seen("updates") == [1] * 3
    return made.result()


@case
def without_a_handler_the_loop_is_inferred_like_any_other():
    made = Made(handler=False).run(loader(5))
    if seen() is not None:
        assert [step["flags"] & 1 for step in seen()] == [0] * 5
    return made.result()


def main():
    found = {}
    folder = Path.cwd()
    for function in CASES:
        (folder / function.__name__).mkdir(exist_ok=True)
        os.chdir(folder / function.__name__)
        try:
            if TRACED:
                _begun[0] = len(_records())
            found[function.__name__] = {"result": function()}
        except BaseException:  # noqa: BLE001 - reported as the case's
            found[function.__name__] = {"raised": traceback.format_exc()}
    Path(sys.argv[1]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
