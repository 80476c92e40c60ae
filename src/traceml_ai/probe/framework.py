"""What a framework's trainer may tell the step state.

A trainer knows where its steps begin and end, which fetches are training's, and what is validation.
While it trains, nothing of that is inferred (`StepState.framework`): an adapter says it here. A step
is one window; with gradient accumulation it is one for each microbatch of a group, summed.

No error of ours leaves a method. On the step path they are written out, as every call costs there,
and book what `Books.advance` would: `begin` leaves the fast path of plain loops, and nothing enters
it while a trainer owns the steps.
"""

from __future__ import annotations

from _thread import get_ident
from typing import Any, NamedTuple

from traceml_ai.probe.columns import (
    ASIDE,
    BETWEEN,
    BOUNDARIES,
    FETCHES,
    FIRST_BIT,
    FLAGS,
    FORWARD,
    GLOBAL_STEP,
    H2D,
    HANDLERS,
    IDLE,
    INPUT,
    LOADER,
    MICROBATCHES,
    NONE,
    OPEN,
    OPTIMIZER,
    OWNED,
    PASS_CALL,
    RESIDUAL,
    SAMPLES,
    SKIPPED_BIT,
    TAIL,
    UPDATES,
)
from traceml_ai.probe.phases import Phases
from traceml_ai.probe.plain import gone
from traceml_ai.probe.safety import safely
from traceml_ai.probe.state import StepState


class _Before(NamedTuple):
    """What a trainer found, and leaves as it was."""

    ident: int
    marked: bool
    on_missing_forward: Any


class Aside(NamedTuple):
    """What `Window.go_aside` found, for `Window.come_back`."""

    cur: int
    framework: int
    no_forward: bool
    marked: bool
    on_missing_forward: Any


class Window(Phases):
    """The steps of one trainer.

    Args:
        st: The process's step state.
    """

    __slots__ = ("_before", "batches", "dropped", "group")

    def __init__(self, st: StepState) -> None:
        super().__init__(st)
        self.group = False  # a step was begun and is not closed
        self.batches = 0  # its finished microbatches
        self.dropped = 0  # groups that were never finished
        self._before: _Before | None = None

    def is_training(self) -> bool:
        """Whether the trainer trains."""
        return self.st.framework in (OWNED, PASS_CALL)

    def is_open(self) -> bool:
        """Whether a batch is being trained; brings the books up to date."""
        st = self.st
        try:
            if st.stage >= IDLE:
                st.settle()
        except Exception as error:  # noqa: BLE001 - ours must not become the training's
            st.fail("framework", error)
            return False
        return st.window

    # -- the trainer --------------------------------------------------------------------------

    @safely
    def begin(self, by_hand: bool) -> None:
        """The trainer begins to train, on this thread; ``by_hand``: its user calls the optimizers."""
        st = self.st
        _end_inferred(st)
        self._before = _Before(st.ident, st.marked, st.on_missing_forward)
        st.ident = get_ident()
        if not st.marked:
            st.begin_marking()
        st.discard()
        st.on_missing_forward = None
        st.train_iterator = gone
        st.framework = OWNED
        st.by_hand = by_hand
        st.no_forward = True
        st.adoptable = False

    @safely
    def end(self) -> None:
        """The trainer has ended; a group that was not finished is dropped."""
        st, before = self.st, self._before
        if before is None or not st.framework:
            return
        st.advance()
        if self.group:
            self.drop()
        st.discard()
        self._before = None
        st.ident, st.marked, st.on_missing_forward = before
        st.framework = NONE
        st.by_hand = st.no_forward = False

    @safely
    def abort(self) -> None:
        """An exception leaves the trainer: the step that is open, if any, is no step."""
        if self.st.stage >= IDLE:
            self.st.settle()
        if not self.st.framework or not self.group:
            return
        if self.st.window:
            self.st.aborted += 1
        self.drop()

    @safely
    def drop(self) -> None:
        """The group that is open is never finished: its time is between steps."""
        st = self.st
        self.dropped += self.batches > 0
        st.discard()
        self.group, self.batches, self._backward = False, 0, None
        st.no_forward = True

    # -- callbacks ----------------------------------------------------------------------------

    @safely
    def begin_handlers(self) -> None:
        """The trainer calls its callbacks and loggers; before the first step that is start-up."""
        st = self.st
        if st.stage >= IDLE:
            st.settle()
        if not st.window and st.step:
            st.advance()
            st.cur = HANDLERS

    def end_handlers(self) -> None:
        """The callbacks have returned."""
        try:
            st = self.st
            if st.stage >= IDLE:
                st.settle()
            if st.cur == HANDLERS:
                now = st.clock()
                st.acc[HANDLERS] += now - st.mark
                st.mark = now
                st.cur = BETWEEN
        except Exception as error:  # noqa: BLE001 - ours must not become the training's
            self.st.fail("framework", error)

    # -- batches ------------------------------------------------------------------------------

    def begin_fetch(self) -> None:
        """A training batch is fetched."""
        try:
            st = self.st
            if st.stage >= IDLE:
                st.settle()
            now = st.clock()
            st.acc[st.cur] += now - st.mark
            st.mark = now
            st.cur = INPUT
            st.in_fetch = True
        except Exception as error:  # noqa: BLE001 - ours must not become the training's
            self.st.fail("framework", error)

    def end_fetch(self, first: bool) -> None:
        """The batch arrived; ``first``: of an epoch."""
        try:
            st = self.st
            if st.stage >= IDLE:
                st.settle()
            now = st.clock()
            acc = st.acc
            acc[st.cur] += now - st.mark
            st.mark = now
            st.in_fetch = False
            acc[FETCHES] += 1
            acc[BOUNDARIES] += 1
            if first:
                acc[FLAGS] |= FIRST_BIT
            st.cur = RESIDUAL if st.window else BETWEEN
        except Exception as error:  # noqa: BLE001 - ours must not become the training's
            self.st.fail("framework", error)

    @safely
    def end_epoch(self) -> None:
        """There was no further batch: ending a loader is no input wait."""
        st = self.st
        if st.stage >= IDLE:
            st.settle()
        now = st.clock()
        st.acc[LOADER] += now - st.mark
        st.mark = now
        st.rare = True
        st.in_fetch = False
        st.cur = st.base()

    # -- windows ------------------------------------------------------------------------------

    def open(self, samples: int, column: int = RESIDUAL) -> None:
        """A batch begins to be trained, in ``column``."""
        try:
            st = self.st
            if st.stage >= IDLE:
                st.settle()
            now = st.clock()
            acc = st.acc
            acc[st.cur] += now - st.mark
            st.mark = now
            if not self.group:
                self.group, self.batches = True, 0
                acc[OPEN] = now
                if st.device is not None:
                    st.device.open()
            if column == H2D and st.device is not None:
                st.device.begin(H2D)
            acc[SAMPLES] += samples
            acc[BOUNDARIES] += 2
            st.window = st.no_forward = True
            st.fresh_batches = 1
            st.cur = column
        except Exception as error:  # noqa: BLE001 - ours must not become the training's
            self.st.fail("framework", error)

    def end_transfer(self) -> None:
        """The batch is where it is trained."""
        try:
            st = self.st
            if st.stage >= IDLE:
                st.settle()
            if not st.window:
                return
            now = st.clock()
            st.acc[st.cur] += now - st.mark
            st.mark = now
            if st.device is not None:
                st.device.end()
            st.cur = RESIDUAL
        except Exception as error:  # noqa: BLE001 - ours must not become the training's
            self.st.fail("framework", error)

    @safely
    def suspend(self) -> None:
        """The batch is over, the step is not."""
        st = self.st
        st.advance()
        if st.cur == OPTIMIZER and st.device is not None:
            st.device.end()
        st.window = False
        st.cur = HANDLERS if st.step else BETWEEN
        self.batches += 1

    def close(self, global_step: int, *, due: bool) -> bool:
        """The step is over; ``due``: an update was, so that none is a skipped one.

        Returns:
            Whether a model call was seen in it.
        """
        seen = True
        try:
            st = self.st
            if st.stage >= IDLE:
                st.settle()
            now = st.clock()
            acc = st.acc
            seen = acc[FORWARD] > 0
            acc[st.cur] += now - st.mark
            st.mark = now
            if due and not acc[UPDATES]:
                acc[FLAGS] |= SKIPPED_BIT
            if st.cur == OPTIMIZER and st.device is not None:
                st.device.end()
            acc[GLOBAL_STEP] = global_step + 1
            plain = not st.rare and not self.batches and _is_plain(acc)
            st.window = self.group = False
            st.cur = HANDLERS
            st.close(now)
            self.was_plain = plain
        except Exception as error:  # noqa: BLE001 - ours must not become the training's
            self.st.fail("framework", error)
        return seen

    # -- something else -----------------------------------------------------------------------

    def go_aside(self, evaluates: bool) -> Aside:
        """The trainer does something that is no training until `come_back`.

        Args:
            evaluates: Whether that is validation; else it is nothing that we know.
        """
        st = self.st
        _end_inferred(st)
        before = Aside(
            st.enter(st.eval_column() if evaluates else st.base()),
            st.framework,
            st.no_forward,
            st.marked,
            st.on_missing_forward,
        )
        st.framework = ASIDE
        st.no_forward = st.marked = True  # nothing is inferred
        st.on_missing_forward = None
        return before

    @safely
    def come_back(self, before: Aside) -> None:
        """The trainer goes on where it was."""
        st = self.st
        st.leave(before.cur)
        _, st.framework, st.no_forward, st.marked, st.on_missing_forward = before


def _is_plain(acc: list[int]) -> bool:
    """Whether a step that is about to be closed had one of each."""
    return acc[FETCHES] == acc[MICROBATCHES] == acc[UPDATES] == 1 and acc[FORWARD] > 0


def _end_inferred(st: StepState) -> None:
    """Bring the books of a plain loop up to date."""
    if st.stage >= IDLE:
        st.settle()
    if st.hand_open:
        st.end_hand_step()
    st.advance()
    if st.cur == TAIL:
        st.leave_tail(st.base())
