"""The phases of a trainer's batch, and its plain steps that are only noted.

Written out like the rest of `probe.framework`: every call costs on the step path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from traceml_ai.probe.columns import (
    BACKWARD,
    BOUNDARIES,
    IDLE,
    MICROBATCHES,
    OPTIMIZER,
    OWN,
    OWNED,
    PASS_CALL,
    RAW_MARKED_BIT,
    SPLIT_AFTER_STEPS,
    T_BACKWARD,
    T_BACKWARDED,
    T_CALLED,
    T_HANDLERS,
    T_OPTIMIZER,
    TOLD_BIT,
)
from traceml_ai.probe.safety import safely
from traceml_ai.probe.state import StepState
from traceml_ai.schema.step import TOLD

BACKWARD_BEGIN, BACKWARD_END = TOLD["backward_begin"], TOLD["backward_end"]
OPTIMIZER_BEGIN = TOLD["optimizer_begin"]


class Phases:
    """What a trainer tells of the batch that is being trained.

    Args:
        st: The process's step state.
    """

    __slots__ = ("_backward", "_optimizer", "listen", "st", "was_plain")

    def __init__(self, st: StepState) -> None:
        self.st = st
        self._backward: int | None = None
        self._optimizer = 0  # id of the one that steps
        # Told when plain steps begin (None), and when they end, in the books already: at which stage.
        self.listen: Callable[[int | None], None] | None = None
        self.was_plain = False  # the last step: one batch, model call, backward and update

    @property
    def ident(self) -> int:
        """The thread that is measured; -1 when measuring was turned off."""
        return self.st.ident

    def fail(self, probe: str, error: BaseException) -> None:
        """An error of ours."""
        self.st.fail(probe, error)

    @safely
    def rest(self) -> None:
        """A step was closed: if it was plain, the next one is only noted in `Plain.told` until it is not.

        For adapters whose trainers fetch, transfer, call, differentiate and update once a step.
        """
        st = self.st
        if not self.was_plain or self._optimizer not in st.versioned or st.device is not None:
            return
        if st.framework != OWNED or st.by_hand or st.resting != IDLE or st.step < SPLIT_AFTER_STEPS:
            return
        st.follow(self._optimizer)
        told = st.told
        told[TOLD["own"]] = st.acc[OWN]
        told[TOLD["begin"]] = st.mark
        told[TOLD["flags"]] = RAW_MARKED_BIT | TOLD_BIT
        told[TOLD["boundaries"]] = 5
        told[TOLD["h2d_end"]] = told[TOLD["optimizer_end"]] = 0  # where an adapter does not note them
        st.telling = self
        st.stage = T_HANDLERS
        if self.listen is not None:
            self.listen(None)

    def resume_backward(self, before: int) -> None:
        """A backward that was noted goes on in the books."""
        self._backward = before

    # -- phases -------------------------------------------------------------------------------

    def begin_calls(self, redirected: bool) -> None:
        """From here on model calls are forward; ``redirected``: not the first, it is the trainer's."""
        try:
            st = self.st
            if st.stage >= IDLE:
                st.settle()
            if st.cur == OPTIMIZER:
                st.leave_framework_optimizer()  # a closure that the optimizer evaluates again
            st.no_forward = False
            if redirected:
                st.framework = PASS_CALL
        except Exception as error:  # noqa: BLE001 - ours must not become the training's
            self.st.fail("framework", error)

    def end_calls(self) -> None:
        """Model calls are not forward any more."""
        try:
            st = self.st
            st.no_forward = True
            if st.framework == PASS_CALL:
                st.framework = OWNED
        except Exception as error:  # noqa: BLE001 - ours must not become the training's
            self.st.fail("framework", error)

    def begin_backward(self, *_of: Any) -> None:
        """The backward of a microbatch begins; calls of autograd inside it are part of it.

        Args:
            _of: What the trainer hands its callbacks, which then can be this very method.
        """
        try:
            st = self.st
            if st.stage == T_CALLED:
                st.told[BACKWARD_BEGIN] = st.clock()
                st.stage = T_BACKWARD
                return
            if st.stage >= IDLE:
                st.settle()
            if not st.window or st.in_backward:
                return
            now = st.clock()
            acc = st.acc
            acc[st.cur] += now - st.mark
            st.mark = now
            acc[BOUNDARIES] += 1
            st.in_backward = st.no_forward = True
            self._backward = st.cur
            st.cur = BACKWARD
            if st.device is not None:
                st.device.begin(BACKWARD)
        except Exception as error:  # noqa: BLE001 - ours must not become the training's
            self.st.fail("framework", error)

    def end_backward(self, *_of: Any) -> None:
        """The backward is over."""
        try:
            st = self.st
            if st.stage == T_BACKWARD:
                st.told[BACKWARD_END] = st.clock()
                st.stage = T_BACKWARDED
                return
            before, self._backward = self._backward, None
            if before is None:
                return
            now = st.clock()
            acc = st.acc
            acc[st.cur] += now - st.mark
            st.mark = now
            st.in_backward = False
            st.cur = before
            if not st.window:
                return
            if st.device is not None:
                st.device.end()
            acc[MICROBATCHES] += st.fresh_batches
            st.fresh_batches = 0
        except Exception as error:  # noqa: BLE001 - ours must not become the training's
            self.st.fail("framework", error)

    def begin_optimizer(self, *of: Any) -> None:
        """Gradients are ready: the rest of the batch is the optimizer's, until another phase begins.

        Args:
            of: The optimizer, behind what else the trainer hands its callbacks.
        """
        try:
            st = self.st
            if st.stage == T_BACKWARDED:
                st.told[OPTIMIZER_BEGIN] = st.clock()
                st.stage = T_OPTIMIZER
                return
            if st.stage >= IDLE:
                st.settle()
            if not st.window:
                return
            optimizer = of[-1]
            self._optimizer = id(optimizer)
            now = st.clock()
            st.acc[st.cur] += now - st.mark
            st.mark = now
            if st.device is not None and st.cur != OPTIMIZER:
                st.device.begin(OPTIMIZER)
            st.cur = OPTIMIZER
            watch = st.watches.get(id(optimizer))
            # A closure may have made the gradients only now, so that the right parameter can be followed.
            if watch is None or watch.bare:
                st.watch(optimizer)
        except Exception as error:  # noqa: BLE001 - ours must not become the training's
            self.st.fail("framework", error)
