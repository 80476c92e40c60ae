"""A trainer's plain steps, noted as time stamps, keep the same books, whatever happens in them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probe.stage import Optimizer, Stage
from traceml_ai.integrations import _lightning_calls as calls
from traceml_ai.integrations._lightning_fit import Fit
from traceml_ai.probe import framework
from traceml_ai.probe.columns import GENERAL, TOLD_BIT
from traceml_ai.probe.framework import Window
from traceml_ai.schema.step import EXCLUSIVE_COLUMNS, FLAGS_COLUMN

WARM = 24
Events = dict[tuple[int, str], str]


class _Fetcher:
    """A data fetcher of the trainer."""

    def __init__(self, loader: object) -> None:
        self._combined_loader = loader
        self.fetched = 0


class _Trainer:
    """A trainer as Lightning's adapter sees it, on a stage, inside the real functions around its calls."""

    def __init__(self, events: Events, *, plain: bool) -> None:
        self.stage = Stage(plain=plain)
        self.st = self.stage.st
        if not plain:
            self.st.resting = GENERAL
        self.events = events
        self.at = 0
        self.fit = self._made_fit()
        self.fetcher = _Fetcher(self.fit.loader)
        adapter: Any = SimpleNamespace(session=SimpleNamespace(st=self.st), fit=self.fit)
        wrap: dict[str, Callable[..., Any]] = {
            "advance": calls._handling,
            "fetch": calls._fetching,
            "move": calls._transferring,
            "train": calls._stepping,
        }
        self.timed = {name: make(adapter, getattr(self, f"_{name}")) for name, make in wrap.items()}

    def _made_fit(self) -> Fit:
        fit = Fit.__new__(Fit)
        fit.window = Window(self.st)
        fit.session = SimpleNamespace(warn=lambda *_args, **_named: None)  # type: ignore[assignment]
        fit.strategy, fit.loader = object(), object()
        fit.ordinary, fit.by_hand, fit.described = True, False, True
        fit.redirected = fit.compiled = False
        progress = SimpleNamespace(optimizer_steps=0)
        fit.automatic = SimpleNamespace(_skip_backward=False, optim_progress=progress)
        fit._global_step = 0
        fit._samples = lambda batch: batch[0].shape[0]
        return fit

    # -- what a trainer does ------------------------------------------------------------------

    def run(self, steps: int) -> list[dict[str, int]]:
        with mock.patch.object(framework, "get_ident", self.stage._ident):
            return self._run(steps)

    def _run(self, steps: int) -> list[dict[str, int]]:
        self.fit.window.begin(False)
        for self.at in range(steps):
            try:
                self.timed["advance"](self)
                self.happens("between steps")
            except ArithmeticError:
                self.fit.window.abort()
                self.fit.window.end()
                self.fit.window.begin(False)
            self.stage.spend(3)
        self.fit.window.end()
        return self.stage.records()

    def _advance(self, _self: object) -> None:
        self.fetcher.fetched += 1
        batch = self.timed["fetch"](self.fetcher)
        self.stage.spend(1)
        batch = self.timed["move"](self.fit.strategy, batch)
        self.happens("ready")
        self.stage.spend(2)
        self.stage.step(5, body=self._closure)
        self.happens("updated")
        self.stage.spend(1)
        self.fit.batch_ends()
        self.happens("callbacks")
        self.stage.spend(7)

    def _fetch(self, _fetcher: object) -> list[Any]:
        self.stage.spend(10)
        self.happens("fetching")
        return [SimpleNamespace(shape=(4, 2))]

    def _move(self, _strategy: object, batch: Any) -> Any:
        self.stage.spend(6)
        self.happens("moving")
        return batch

    def _closure(self) -> None:
        window = self.fit.window
        self.timed["train"](self.fit.strategy)
        self.happens("called")
        self.stage.spend(1)
        window.begin_backward()
        self.stage.backward(40, body=lambda: self.body("backward", 40))
        window.end_backward()
        self.happens("differentiated")
        self.stage.spend(1)
        window.begin_optimizer(self.stage.sgd)
        self.happens("updating")
        self.stage.spend(5)
        self.fit.automatic.optim_progress.optimizer_steps += 1

    def _train(self, _strategy: object) -> None:
        self.stage.spend(2)
        self.happens("before the call")
        self.stage.forward(20, body=lambda: self.body("forward", 20))
        self.happens("after the call")
        self.stage.spend(3)

    # -- what may happen ----------------------------------------------------------------------

    def body(self, point: str, us: int) -> None:
        self.stage.spend(us)
        self.happens(point)

    def happens(self, point: str) -> None:
        event = self.events.get((self.at, point))
        if event is not None:
            getattr(self, event)()

    def collects(self) -> None:
        self.st.gc_start()
        self.stage.spend(19)
        self.st.gc_stop()

    def saves(self) -> None:
        self.stage.save(50)

    def raises(self) -> None:
        raise ArithmeticError

    def differentiates(self) -> None:
        self.stage.backward(8)

    def validates(self) -> None:
        before = self.fit.window.go_aside(True)
        self.stage.spend(70)
        self.fit.window.come_back(before)

    def calls_a_model(self) -> None:
        self.stage.forward(9)

    def updates(self) -> None:
        self.stage.step(4)

    def trains_elsewhere(self) -> None:
        self.stage.thread = 99
        self.stage.forward(5)
        self.stage.step(5, Optimizer())
        self.stage.thread = 7

    def pretends_an_epoch(self) -> None:
        self.fetcher.fetched = 0


POINTS = [
    "fetching",
    "moving",
    "ready",
    "before the call",
    "forward",
    "after the call",
    "called",
    "backward",
    "differentiated",
    "updating",
    "updated",
    "callbacks",
    "between steps",
]
# A save is left out while a trainer is in a phase of ours; a thread of its own is looked at below.
HAPPENINGS = ["collects", "saves", "raises", "differentiates", "validates", "calls_a_model", "updates"]
_SPOTS = st.tuples(st.integers(WARM, WARM + 5), st.sampled_from(POINTS))


def _books(records: list[dict[str, int]]) -> list[dict[str, int]]:
    return [{k: v for k, v in record.items() if k != "boundaries"} for record in records]


def _exclusive(record: dict[str, int]) -> list[int]:
    return [record[name.removesuffix("_ns")] for name in EXCLUSIVE_COLUMNS]


@settings(max_examples=500, deadline=None)
@given(st.dictionaries(_SPOTS, st.sampled_from([*HAPPENINGS, "pretends_an_epoch"]), max_size=4))
def test_noted_steps_keep_the_same_books(events: Events) -> None:
    noted = _Trainer(events, plain=True).run(WARM + 8)
    general = _Trainer(events, plain=False).run(WARM + 8)
    assert _books(noted) == _books(general)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(_SPOTS, st.sampled_from([*HAPPENINGS, "trains_elsewhere"]), max_size=4))
def test_no_time_of_a_trainer_is_lost_or_counted_twice(events: Events) -> None:
    records = _Trainer(events, plain=True).run(WARM + 8)
    ends = [record["close_ns"] // 1000 for record in records]
    for previous, end, record in zip(ends, ends[1:], records[1:], strict=False):
        assert sum(_exclusive(record)) == end - previous
        assert min(_exclusive(record)) >= 0


def test_a_trainers_plain_steps_are_really_noted() -> None:
    trainer = _Trainer({}, plain=True)
    trainer.run(40)
    noted = [bool(record[FLAGS_COLUMN] & TOLD_BIT) for record in trainer.stage.log.records]
    assert len(noted) == 40
    assert noted.count(True) >= 18
    assert not any(noted[:20])


@pytest.mark.parametrize("point", POINTS)
def test_after_something_else_the_next_steps_are_noted_again(point: str) -> None:
    trainer = _Trainer({(WARM, point): "collects"}, plain=True)
    trainer.run(WARM + 6)
    noted = [bool(record[FLAGS_COLUMN] & TOLD_BIT) for record in trainer.stage.log.records]
    assert all(noted[-3:])
    assert not all(noted[WARM - 2 :])


def test_no_step_is_noted_once_another_thread_trains_as_well() -> None:
    trainer = _Trainer({(WARM, "between steps"): "trains_elsewhere"}, plain=True)
    trainer.run(WARM + 6)
    noted = [bool(record[FLAGS_COLUMN] & TOLD_BIT) for record in trainer.stage.log.records]
    assert noted[WARM - 1]
    assert not any(noted[-4:])
