"""The timed calls of optimizers; see `probe.patches`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from traceml_ai.probe.columns import (
    BACKWARDED,
    IDLE,
    IN_OPTIMIZER,
    RESIDUAL,
    T_OPTIMIZER,
    T_READY,
    T_UPDATED,
    UPDATED,
)
from traceml_ai.probe.patches import Wrapped
from traceml_ai.probe.plain import gone
from traceml_ai.probe.state import StepState
from traceml_ai.schema.step import RAW

_TOLD = (T_OPTIMIZER, T_READY)  # stages of a trainer's plain step in which its optimizer may step
OPTIMIZER_BEGIN, OPTIMIZER_END = RAW["optimizer_begin"], RAW["optimizer_end"]


def timed_step(
    st: StepState,
    inner: Wrapped,
    get_ident: Callable[[], int],
    is_compiling: Callable[[], bool],
) -> Wrapped:
    """Time an optimizer class's ``step``, the outermost call only."""
    raw, clock = st.raw, st.clock

    @functools.wraps(inner)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: PLR0911, PLR0912 - a call less
        if is_compiling():
            return inner(self, *args, **kwargs)
        if st.stage == BACKWARDED and st.plain_optimizer() is self:
            parameter = st.plain_parameter()
            if parameter is not None:
                version = parameter._version  # noqa: SLF001
                st.stage = IN_OPTIMIZER
                raw[OPTIMIZER_BEGIN] = clock()
                try:
                    out = inner(self, *args, **kwargs)
                except BaseException:
                    st.raised(RESIDUAL)
                    raise
                now = clock()
                changed = parameter._version != version  # noqa: SLF001
                if st.stage == IN_OPTIMIZER and changed:
                    raw[OPTIMIZER_END] = now
                    if st.marked:
                        st.stage = UPDATED
                        return out
                    try:
                        st.close_noted(raw, now, IDLE)
                    except Exception as error:  # noqa: BLE001
                        st.fail("optimizer", error)
                    return out
                st.leave_odd_optimizer(self, changed)
                return out
        if st.stage in _TOLD and st.plain_optimizer() is self and not st.in_optimizer:
            # A trainer's plain step: its closure, if it has one, runs inside. (On another thread nothing
            # is plain, see `probe.patches`.)
            parameter = st.plain_parameter()
            if parameter is not None:
                version = parameter._version  # noqa: SLF001
                st.in_optimizer = True
                try:
                    out = inner(self, *args, **kwargs)
                finally:
                    st.in_optimizer = False
                changed = parameter._version != version  # noqa: SLF001
                if st.stage == T_OPTIMIZER and changed:
                    st.stage = T_UPDATED
                else:
                    st.count_update(self, changed)
                return out
        if get_ident() != st.ident:
            if st.ident != -1:
                st.note_foreign()
            return inner(self, *args, **kwargs)
        if st.framework and not st.in_optimizer:
            parameter = st.versioned.get(id(self), gone)()
            if parameter is not None:
                version = parameter._version  # noqa: SLF001
                st.in_optimizer = True
                try:
                    out = inner(self, *args, **kwargs)
                finally:
                    st.in_optimizer = False
                st.count_update(self, parameter._version != version)  # noqa: SLF001
                return out
        try:
            if st.stage >= IDLE:
                st.settle()
            nested = st.in_optimizer
            watch = st.watch(self)
            before = 0 if nested else st.enter_optimizer()
        except Exception as error:  # noqa: BLE001
            st.fail("optimizer", error)
            return inner(self, *args, **kwargs)
        try:
            out = inner(self, *args, **kwargs)
        except BaseException:
            if not nested:
                st.raised(before)
            raise
        try:
            st.took_effect = st.judge(self, watch) or st.took_effect
            if not nested:
                st.leave_optimizer(before, self)
        except Exception as error:  # noqa: BLE001
            st.fail("optimizer", error)
        return out

    return step


def timed_scaler_step(st: StepState, inner: Wrapped, get_ident: Callable[[], int]) -> Wrapped:
    """Time ``GradScaler.step``: an update attempt that may skip ``optimizer.step``."""

    @functools.wraps(inner)
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if get_ident() != st.ident or st.in_optimizer or st.stage == IN_OPTIMIZER:
            return inner(self, optimizer, *args, **kwargs)
        try:
            before = st.enter_optimizer()
        except Exception as error:  # noqa: BLE001
            st.fail("optimizer", error)
            return inner(self, optimizer, *args, **kwargs)
        try:
            out = inner(self, optimizer, *args, **kwargs)
        except BaseException:
            st.raised(before)
            raise
        try:
            st.leave_optimizer(before, optimizer, scaled=True)
        except Exception as error:  # noqa: BLE001
            st.fail("optimizer", error)
        return out

    return step
