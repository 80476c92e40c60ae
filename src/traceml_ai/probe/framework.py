"""What a framework's trainer may tell the step state.

A trainer knows where its steps begin and end, which fetches are training's, and what is validation.
While it trains, nothing of that is inferred (`StepState.framework`): an adapter says it here. A step
is one window; with gradient accumulation it is one for each microbatch of a group, summed.

Every method returns at once when measuring was turned off, and no error of ours leaves them.
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
    HANDLERS,
    IDLE,
    INPUT,
    LOADER,
    NONE,
    OPTIMIZER,
    OWNED,
    PASS_CALL,
    RESIDUAL,
    SKIPPED_BIT,
    TAIL,
    UPDATES,
)
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


class Window:
    """The steps of one trainer.

    Args:
        st: The process's step state.
    """

    def __init__(self, st: StepState) -> None:
        self.st = st
        self.group = False  # a step was begun and is not closed
        self.batches = 0  # its finished microbatches
        self.dropped = 0  # groups that were never finished
        self._before: _Before | None = None
        self._watched: set[int] = set()
        self._backward: int | None = None

    @property
    def ident(self) -> int:
        """The thread that is measured; -1 when measuring was turned off."""
        return self.st.ident

    def fail(self, probe: str, error: BaseException) -> None:
        """An error of ours."""
        self.st.fail(probe, error)

    def is_training(self) -> bool:
        """Whether the trainer trains, here and now."""
        st = self.st
        return st.framework in (OWNED, PASS_CALL) and st.ident == get_ident()

    def is_open(self) -> bool:
        """Whether a batch is being trained."""
        return self.st.window and self.is_training()

    # -- the trainer --------------------------------------------------------------------------

    @safely
    def begin(self) -> None:
        """The trainer begins to train, on this thread."""
        st = self.st
        _end_inferred(st)
        self._before = _Before(st.ident, st.marked, st.on_missing_forward)
        st.ident = get_ident()
        if not st.marked:
            st.begin_marking()
        st.discard()
        st.on_missing_forward = None
        st.train_iterator = 0
        st.framework = OWNED
        st.no_forward = True

    @safely
    def end(self) -> None:
        """The trainer has ended; a group that was not finished is dropped."""
        st, before = self.st, self._before
        if before is None or not st.framework:
            return
        if self.group:
            self.drop()
        st.discard()
        self._before = None
        st.ident, st.marked, st.on_missing_forward = before
        st.framework = NONE
        st.no_forward = False

    @safely
    def abort(self) -> None:
        """An exception leaves the trainer: the step that is open, if any, is no step."""
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
        st.cur = self._idle()

    def _idle(self) -> int:
        """The column of time that no one asked for; before the first step it is start-up."""
        return HANDLERS if self.st.step else BETWEEN

    # -- batches ------------------------------------------------------------------------------

    def begin_fetch(self) -> int:
        """A training batch is fetched; returns what to end with."""
        st = self.st
        st.advance()
        st.acc[BOUNDARIES] += 1
        before, st.cur = st.cur, INPUT
        st.in_fetch = True
        return before

    @safely
    def end_fetch(self, first: bool) -> None:
        """The batch arrived; ``first``: of an epoch."""
        st = self.st
        st.advance()
        st.in_fetch = False
        st.acc[FETCHES] += 1
        if first:
            st.acc[FLAGS] |= FIRST_BIT
        st.cur = st.base()

    @safely
    def end_epoch(self) -> None:
        """There was no further batch: ending a loader is no input wait."""
        st = self.st
        now = st.clock()
        st.acc[LOADER] += now - st.mark
        st.mark = now
        st.rare = True
        st.in_fetch = False
        st.cur = st.base()

    # -- windows ------------------------------------------------------------------------------

    @safely
    def open(self) -> None:
        """A batch begins to be trained; nothing if it has begun."""
        st = self.st
        if st.window:
            return
        now = st.advance()
        st.acc[BOUNDARIES] += 1
        if self.group:
            st.window = True
            st.cur = RESIDUAL
        else:
            st.open_window(now)
            self.group, self.batches = True, 0
            self._watched.clear()
        st.fresh_batches = 1
        st.no_forward = True

    @safely
    def suspend(self) -> None:
        """The batch is over, the step is not."""
        st = self.st
        st.advance()
        st.window = False
        st.cur = HANDLERS
        self.batches += 1

    @safely
    def close(self, global_step: int) -> None:
        """The step is over."""
        st = self.st
        now = st.advance()
        acc = st.acc
        acc[GLOBAL_STEP] = global_step + 1
        st.rare = True
        st.window = self.group = False
        st.cur = HANDLERS
        st.close(now)

    def saw_forward(self) -> bool:
        """Whether a model call was seen in the step that is open."""
        return self.st.acc[FORWARD] > 0

    @safely
    def skip_update(self) -> None:
        """An update was due and was not even tried."""
        if not self.st.acc[UPDATES]:
            self.st.acc[FLAGS] |= SKIPPED_BIT

    # -- phases -------------------------------------------------------------------------------

    @safely
    def begin_calls(self, redirected: bool) -> None:
        """From here on model calls are forward; ``redirected``: not the first, it is the trainer's."""
        st = self.st
        if st.cur == OPTIMIZER:
            # A closure that the optimizer evaluates again.
            self._leave_optimizer()
        st.no_forward = False
        st.framework = PASS_CALL if redirected else OWNED

    @safely
    def end_calls(self) -> None:
        """Model calls are not forward any more."""
        self.st.no_forward = True
        if self.st.framework == PASS_CALL:
            self.st.framework = OWNED

    @safely
    def begin_backward(self) -> None:
        """The backward of a microbatch begins; calls of autograd inside it are part of it."""
        st = self.st
        if st.window and not st.in_backward:
            self._backward = st.enter_backward()

    @safely
    def end_backward(self) -> None:
        """The backward is over."""
        before, self._backward = self._backward, None
        if before is not None:
            self.st.leave_backward(before, was_forward=True)

    @safely
    def begin_optimizer(self, optimizer: Any) -> None:
        """Gradients are ready: the rest of the batch is the optimizer's, until another phase begins."""
        st = self.st
        if not st.window:
            return
        st.advance()
        st.acc[BOUNDARIES] += 1
        if st.cur != OPTIMIZER and st.device is not None:
            st.device.begin(OPTIMIZER)
        st.cur = OPTIMIZER
        # Once a step: an optimizer that evaluates a closure again has changed the parameters by then.
        if id(optimizer) not in self._watched:
            self._watched.add(id(optimizer))
            st.watch(optimizer)

    @safely
    def end_optimizer(self) -> None:
        """The optimizer's phase is over before the batch is."""
        if self.st.window and self.st.cur == OPTIMIZER:
            self._leave_optimizer()

    def _leave_optimizer(self) -> None:
        st = self.st
        st.advance()
        if st.device is not None:
            st.device.end()
        st.cur = RESIDUAL

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
        )
        st.framework = ASIDE
        st.no_forward = True
        return before

    @safely
    def come_back(self, before: Aside) -> None:
        """The trainer goes on where it was."""
        st = self.st
        st.leave(before.cur)
        st.framework = before.framework
        st.no_forward = before.no_forward


def _end_inferred(st: StepState) -> None:
    """Bring the books of a plain loop up to date."""
    if st.stage >= IDLE:
        st.settle()
    if st.hand_open:
        st.end_hand_step()
    st.advance()
    if st.cur == TAIL:
        st.leave_tail(st.base())
