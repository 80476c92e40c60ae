"""The fast path of plain steps keeps the same books as the general one, whatever the program does."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probe.stage import Stage
from traceml_ai import api
from traceml_ai.probe import session as sessions
from traceml_ai.probe.columns import RAW_BIT
from traceml_ai.schema.step import FLAGS_COLUMN


class _Program:
    """One random program on one stage; every event may come at any time."""

    def __init__(self, *, plain: bool, marked: bool, late: bool = False) -> None:
        self.late = late  # another thread shows up for the first time when plain steps have begun
        self.stage = Stage(plain=plain)
        self.marked = marked
        self.mark: Callable[[], api.TracedStep] = lambda: api.trace_step(self.stage.model)
        self.step = self.mark()
        self.train = self.stage.iterate("train", us=3)
        self.held_out = self.stage.iterate("held out")
        self.others = self.stage.iterate("another thread's")
        self.events: dict[str, Callable[[], None]] = {
            "ordinary": self.ordinary,
            "fetch": lambda: self.stage.fetch(self.train, 11),
            "forward": lambda: self.stage.forward(21),
            "backward": lambda: self.stage.backward(41),
            "step": lambda: self.stage.step(6),
            "open": self.open,
            "close": self.close,
            "spend": lambda: self.stage.spend(2),
            "save": lambda: self.stage.save(31),
            "evaluate": self.evaluate,
            "collect": self.collect,
            "epoch": self.epoch,
            "nested forward": lambda: self.stage.forward(0, body=lambda: self.stage.forward(9)),
            "grad in forward": lambda: self.stage.forward(0, body=lambda: self.stage.backward(8)),
            "recompute": lambda: self.stage.backward(0, body=lambda: self.stage.forward(7)),
            "closure": lambda: self.stage.step(0, body=self.closure),
            "collect in forward": lambda: self.stage.forward(0, body=self.collect),
            "failing forward": lambda: self.fail(lambda body: self.stage.forward(0, body=body)),
            "failing backward": lambda: self.fail(lambda body: self.stage.backward(0, body=body)),
            "failing step": lambda: self.fail(lambda body: self.stage.step(0, body=body)),
            "skipped": lambda: self.stage.scaled_step(5, skip=True),
            "other thread": self.other_thread,
        }

    def run(self, names: list[str]) -> list[dict[str, int]]:
        session = SimpleNamespace(st=self.stage.st)
        with (
            mock.patch.object(sessions, "current", session),
            mock.patch.object(api, "get_ident", self.thread),
        ):
            return self.run_in_session(names)

    def thread(self) -> int:
        return self.stage.thread

    def run_in_session(self, names: list[str]) -> list[dict[str, int]]:
        if "other thread" in names and not self.late:
            self.other_thread()  # it has been there all along
        for _ in range(25):
            self.ordinary()
        for name in names:
            self.events[name]()
        self.ordinary()
        return self.stage.records()

    def ordinary(self) -> None:
        self.stage.fetch(self.train, 10)
        self.open()
        self.stage.forward(20)
        self.stage.backward(40)
        self.stage.step(5)
        self.close()
        self.stage.spend(1)

    def open(self) -> None:
        if self.marked:
            self.step = self.mark()
            self.step.__enter__()

    def close(self) -> None:
        if self.marked:
            self.step.__exit__(None, None, None)

    def evaluate(self) -> None:
        with self.stage.evaluating():
            self.stage.fetch(self.held_out, 13)
            self.stage.forward(17)

    def collect(self) -> None:
        self.stage.st.gc_start()
        self.stage.spend(19)
        self.stage.st.gc_stop()

    def epoch(self) -> None:
        self.stage.end(self.train, us=1)
        self.train = self.stage.iterate("train", us=3)

    def closure(self) -> None:
        self.stage.forward(20)
        self.stage.backward(40)

    def fail(self, call: Callable[[Callable[[], None]], None]) -> None:
        def body() -> None:
            self.stage.spend(4)
            raise ArithmeticError

        try:
            call(body)
        except ArithmeticError as error:
            if self.marked:
                self.step.__exit__(type(error), error, None)

    def other_thread(self) -> None:
        self.stage.thread = 99
        self.stage.fetch(self.others, 5)
        self.stage.forward(5)
        self.stage.thread = 7


_EVENTS = sorted(_Program(plain=True, marked=False).events)


def _without_counts_of_ours(records: list[dict[str, int]]) -> list[dict[str, int]]:
    return [{k: v for k, v in r.items() if k != "boundaries"} for r in records]


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(_EVENTS), max_size=14), st.booleans())
def test_the_fast_path_keeps_the_same_books(names: list[str], marked: bool) -> None:
    plain = _Program(plain=True, marked=marked).run(names)
    general = _Program(plain=False, marked=marked).run(names)
    assert _without_counts_of_ours(plain) == _without_counts_of_ours(general)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(_EVENTS), max_size=14), st.booleans(), st.booleans())
def test_no_time_is_lost_or_counted_twice(
    names: list[str],
    plain: bool,
    marked: bool,
) -> None:
    program = _Program(plain=plain, marked=marked, late=True)
    records = program.run(names)
    ends = [record["close_ns"] // 1000 for record in records]
    for previous, end, record in zip(ends, ends[1:], records[1:], strict=False):
        assert sum(_exclusive(record)) == end - previous
        assert min(_exclusive(record)) >= 0


def _exclusive(record: dict[str, int]) -> list[int]:
    from traceml_ai.schema.step import EXCLUSIVE_COLUMNS

    return [record[name.removesuffix("_ns")] for name in EXCLUSIVE_COLUMNS]


@pytest.mark.parametrize("call", ["forward", "backward", "step"])
def test_no_step_is_plain_once_another_thread_trains_as_well(call: str) -> None:
    program = _Program(plain=True, marked=False)
    program.ordinary()
    program.stage.thread = 99
    getattr(program.stage, call)(5)
    program.stage.thread = 7
    for _ in range(40):
        program.ordinary()
    assert not any(record[FLAGS_COLUMN] & RAW_BIT for record in program.stage.log.records)


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("marked", [False, True])
def test_plain_steps_are_really_written_as_time_stamps(marked: bool, named: bool, kept: bool) -> None:
    program = _Program(plain=True, marked=marked)
    if not named:
        program.mark = api.trace_step
    if kept:
        step = program.mark()
        program.mark = lambda: step
    program.run(["ordinary"] * 15)
    written = [bool(record[FLAGS_COLUMN] & RAW_BIT) for record in program.stage.log.records]
    assert written.count(True) >= 15
    assert not any(written[:20])
