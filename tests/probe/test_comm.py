"""What a rank stands at collectives: where it is booked, and that nothing of the program changes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from probe.stage import THREAD, ListLog, Stage
from traceml_ai.probe import comm
from traceml_ai.probe.columns import (
    BETWEEN,
    FETCHED,
    FORWARD,
    FORWARDED,
    GENERAL,
    IN_BACKWARD,
    IN_FETCH,
    IN_FORWARD,
    IN_OPTIMIZER,
    INPUT,
    OPENED,
    RESIDUAL,
)
from traceml_ai.probe.comm import CommLog, Standing, timed_engine, timed_wait
from traceml_ai.schema.step import COMM_PLACES, INDEX, unpack_comm_split

COMM, ARRIVAL, SPLIT = INDEX["comm_ns"], INDEX["arrival_ns"], INDEX["comm_split"]


class PatchLog(ListLog):
    """A step log in memory that fills up."""

    def __init__(self, room: int = 1 << 30) -> None:
        super().__init__()
        self.room = room

    @property
    def count(self) -> int:
        return len(self.records)

    def append(self, values: Sequence[int]) -> None:
        if self.count < self.room:
            super().append(values)


def standing() -> tuple[Stage, Standing]:
    stage = Stage()
    return stage, Standing(stage.st)


def waits(stage: Stage, stood: Standing, ns: int) -> None:
    def collective() -> str:
        stage.now += ns
        return "done"

    assert timed_wait(stood, collective, lambda: THREAD)() == "done"


@pytest.mark.parametrize(
    ("at", "place"),
    [
        (IN_FETCH, "input_wait"),
        (FETCHED, "between_steps"),
        (OPENED, "residual"),
        (IN_FORWARD, "forward"),
        (FORWARDED, "residual"),
        (IN_BACKWARD, "backward"),
        (IN_OPTIMIZER, "optimizer"),
    ],
)
def test_a_wait_in_a_plain_step_is_booked_where_the_step_is(at: int, place: str) -> None:
    stage, stood = standing()
    stage.st.stage = at
    waits(stage, stood, 500)
    assert dict(zip(COMM_PLACES, stood.by_place, strict=True))[place] == 500
    assert stood.total == sum(stood.by_place) == 500


@pytest.mark.parametrize(
    ("column", "window", "place"),
    [
        (INPUT, False, "input_wait"),
        (FORWARD, True, "forward"),
        (RESIDUAL, True, "residual"),
        (BETWEEN, False, "between_steps"),
    ],
)
def test_a_wait_in_the_books_is_booked_by_the_current_column(
    column: int, *, window: bool, place: str
) -> None:
    stage, stood = standing()
    stage.st.stage, stage.st.cur, stage.st.window = GENERAL, column, window
    waits(stage, stood, 500)
    assert dict(zip(COMM_PLACES, stood.by_place, strict=True))[place] == 500


def test_the_first_wait_is_the_arrival() -> None:
    stage, stood = standing()
    begin = stage.now
    waits(stage, stood, 5)
    waits(stage, stood, 5)
    assert stood.take()[:2] == (10, begin)
    assert stood.take()[:2] == (0, 0)


def test_a_wait_inside_another_counts_once() -> None:
    stage, stood = standing()
    inner = timed_wait(stood, lambda: setattr(stage, "now", stage.now + 7), lambda: THREAD)
    timed_wait(stood, inner, lambda: THREAD)()
    assert stood.total == 7


def test_a_wait_on_another_thread_is_not_ours() -> None:
    stage, stood = standing()
    timed_wait(stood, lambda: setattr(stage, "now", stage.now + 7), lambda: THREAD + 1)()
    assert stood.total == 0


def test_an_exception_of_a_collective_reaches_the_program() -> None:
    stage, stood = standing()

    def fails() -> None:
        stage.now += 9
        raise ConnectionError("peer")

    with pytest.raises(ConnectionError, match="peer"):
        timed_wait(stood, fails, lambda: THREAD)()
    assert stood.total == 9
    assert not stood.inside


def test_an_error_of_ours_turns_measuring_off_and_not_the_program() -> None:
    stage, stood = standing()
    told: list[str] = []
    stage.st.on_fail = lambda probe, _error: told.append(probe)
    stood.by_place = []
    waits(stage, stood, 5)
    assert told == ["collectives"]
    assert stage.st.ident == -1
    waits(stage, stood, 5)


# --- records -----------------------------------------------------------------------------------


def test_a_record_gets_what_was_stood_since_the_last_and_where() -> None:
    stage, stood = standing()
    log = PatchLog()
    stage.st.stage = IN_FORWARD
    waits(stage, stood, 300)
    stage.st.stage = IN_BACKWARD
    waits(stage, stood, 700)
    ours = CommLog(log, stood)
    ours.append([1, 2, 3])
    record = log.records[0]
    assert (record[0], record[COMM]) == (1, 1000)
    assert record[ARRIVAL] == stage.now - 1000
    places = dict(zip(COMM_PLACES, unpack_comm_split(record[SPLIT], 1000), strict=True))
    assert (places["forward"], places["backward"]) == (pytest.approx(300, abs=2), pytest.approx(700, abs=2))
    ours.append([4])
    assert log.records[1][COMM] == log.records[1][SPLIT] == 0


def test_a_step_that_goes_on_keeps_what_it_stood_and_gets_the_rest() -> None:
    stage, stood = standing()
    log = PatchLog()
    ours = CommLog(log, stood)
    stage.st.stage = IN_BACKWARD
    waits(stage, stood, 300)
    ours.append([1])
    waits(stage, stood, 200)
    newest = ours.newest()
    assert newest[COMM] == newest[SPLIT] == 0
    ours.amend(newest)
    assert log.records[0][COMM] == 500


def test_a_record_without_room_leaves_the_one_before_as_it_was() -> None:
    stage, stood = standing()
    log = PatchLog(room=1)
    ours = CommLog(log, stood)
    ours.append([1])
    waits(stage, stood, 200)
    ours.append([2])
    assert log.records[0][COMM] == 0


# --- backwards ---------------------------------------------------------------------------------


class Clocked(torch.autograd.Function):
    """Takes so long in its backward, on the stage's clock."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, takes: Callable[[], None]) -> torch.Tensor:
        ctx.takes = takes
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        ctx.takes()
        return grads[0] * 2, None


AUTOGRAD: Any = torch.autograd
queue = torch.autograd.Variable._execution_engine.queue_callback


def engine(stage: Stage, stood: Standing, ident: int = THREAD) -> Callable[..., Any]:
    return timed_engine(stood, AUTOGRAD._engine_run_backward, queue, lambda: ident)


def run_backward(run: Callable[..., Any], loss: torch.Tensor) -> None:
    run((loss,), (torch.ones_like(loss),), False, False, (), allow_unreachable=True, accumulate_grad=True)


def loss_of(stage: Stage, own_ns: int, reduced_ns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A backward that computes for so long, and whose last callback then waits, as DDP's does."""
    weight = torch.ones(3, requires_grad=True)

    def computes() -> None:
        stage.now += own_ns
        if reduced_ns:
            queue(lambda: setattr(stage, "now", stage.now + reduced_ns))

    return weight, Clocked.apply(weight, computes).sum()  # type: ignore[no-untyped-call]


def test_what_follows_the_own_gradients_of_a_backward_is_standing() -> None:
    stage, stood = standing()
    stage.st.stage = IN_BACKWARD
    weight, loss = loss_of(stage, own_ns=4000, reduced_ns=900)
    begin = stage.now
    run_backward(engine(stage, stood), loss)
    assert stood.take()[:2] == (900, begin + 4000)
    assert weight.grad is not None
    assert weight.grad.tolist() == [2.0, 2.0, 2.0]


def test_waits_in_the_last_callbacks_that_are_timed_by_themselves_count_once() -> None:
    stage, stood = standing()
    stage.st.stage = IN_BACKWARD
    weight = torch.ones(3, requires_grad=True)

    def computes() -> None:
        queue(lambda: waits(stage, stood, 900))

    run_backward(engine(stage, stood), Clocked.apply(weight, computes).sum())  # type: ignore[no-untyped-call]
    assert stood.total == 900


def test_nothing_stays_on_the_graph_after_a_backward() -> None:
    stage, stood = standing()
    weight = torch.ones(3, requires_grad=True)
    seen: list[int] = []
    loss = Clocked.apply(weight, lambda: seen.append(1)).sum()  # type: ignore[no-untyped-call]
    run = engine(stage, stood)
    run((loss,), (torch.ones_like(loss),), True, False, (), allow_unreachable=True, accumulate_grad=True)
    stood.complete_at = 0
    torch.autograd.backward(loss)
    assert stood.complete_at == 0
    assert len(seen) == 2


def test_a_backward_on_another_thread_is_not_ours() -> None:
    stage, stood = standing()
    _, loss = loss_of(stage, 10, 900)
    run_backward(engine(stage, stood, ident=THREAD + 1), loss)
    assert stood.total == 0


def test_a_backward_that_raises_reaches_the_program_and_the_next_is_measured() -> None:
    stage, stood = standing()

    def breaks() -> None:
        raise ArithmeticError("nan")

    weight = torch.ones(3, requires_grad=True)
    run = engine(stage, stood)
    with pytest.raises(ArithmeticError, match="nan"):
        run_backward(run, Clocked.apply(weight, breaks).sum())  # type: ignore[no-untyped-call]
    _, loss = loss_of(stage, 10, 900)
    run_backward(run, loss)
    assert stood.total == 900


def test_an_output_without_a_graph_is_left_to_the_engine() -> None:
    stage, stood = standing()
    leaf = torch.ones((), requires_grad=True)
    run_backward(engine(stage, stood), leaf)
    assert leaf.grad is not None
    assert stood.total == 0
    assert comm._before_first_node((object(),), lambda: None) is None


def test_compiled_backwards_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, stood = standing()
    compiler = SimpleNamespace(compiled_autograd_enabled=True)
    monkeypatch.setitem(sys.modules, "torch._dynamo.compiled_autograd", compiler)
    _, loss = loss_of(stage, 10, 900)
    run_backward(engine(stage, stood), loss)
    assert stood.total == 0


def test_an_error_of_ours_in_a_backward_leaves_the_gradients_right() -> None:
    stage, stood = standing()
    told: list[str] = []
    stage.st.on_fail = lambda probe, _error: told.append(probe)

    def refuses(_callback: Callable[[], None]) -> None:
        raise RuntimeError("another engine")

    weight, loss = loss_of(stage, 10, 0)
    run_backward(timed_engine(stood, AUTOGRAD._engine_run_backward, refuses, lambda: THREAD), loss)
    assert told == ["collectives"]
    assert weight.grad is not None


def test_an_error_of_ours_after_a_backward_is_ours() -> None:
    stage, stood = standing()
    told: list[str] = []
    stage.st.on_fail = lambda probe, _error: told.append(probe)
    _, loss = loss_of(stage, 10, 900)
    stood.by_place = []
    run_backward(engine(stage, stood), loss)
    assert told == ["collectives"]


def test_a_process_by_itself_is_not_distributed() -> None:
    assert not comm.is_distributed(torch)
