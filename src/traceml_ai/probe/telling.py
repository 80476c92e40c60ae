"""A trainer's plain steps: from their time stamps to the general books.

What `Plain.raw` is for a plain loop, `Plain.told` is for a trainer whose steps consist of one fetch,
transfer, model call, backward and update each: an adapter only notes time stamps (`Window.rest`). As
soon as anything else happens, what was noted of the step that is under way is booked here.
"""

from __future__ import annotations

from typing import Any

from traceml_ai.probe.books import Books
from traceml_ai.probe.columns import (
    BACKWARD,
    BACKWARDED,
    BETWEEN,
    BOUNDARIES,
    FETCHES,
    FORWARD,
    FORWARDED,
    H2D,
    HANDLERS,
    IN_BACKWARD,
    IN_FORWARD,
    IN_OPTIMIZER,
    INPUT,
    MICROBATCHES,
    OPEN,
    OPENED,
    OPTIMIZER,
    OWN,
    RESIDUAL,
    SAMPLES,
    T_BACKWARD,
    T_BACKWARDED,
    T_BETWEEN,
    T_CALLED,
    T_CLOSING,
    T_FETCH,
    T_FETCHED,
    T_HANDLERS,
    T_INFERRING,
    T_MOVING,
    T_OPTIMIZER,
    T_READY,
    T_TRAINING,
    T_ZEROING,
    UPDATES,
)
from traceml_ai.schema.step import RAW, TOLD


def _note(st: Books, column: int, at: int) -> None:
    """Book the time up to a noted stamp."""
    st.acc[column] += at - st.mark
    st.mark = at


def settle_told(st: Books, window: Any, stage: int) -> None:
    """Book a trainer's step as far as it has come.

    Args:
        st: The step state.
        window: The trainer's `Window`.
        stage: How far that is.
    """
    _settle_between(st, window, stage)
    if window.listen is not None:
        window.listen(stage)


def _settle_between(st: Books, window: Any, stage: int) -> None:
    """`settle_told` from the step before on."""
    told = st.told
    st.acc[OWN] = told[TOLD["own"]]
    st.mark = told[TOLD["begin"]]
    st.cur = HANDLERS
    if stage == T_HANDLERS:
        return
    _note(st, HANDLERS, told[TOLD["handlers_end"]])
    st.cur = BETWEEN
    if stage == T_BETWEEN:
        return
    _note(st, BETWEEN, told[TOLD["fetch_begin"]])
    if stage == T_FETCH:
        st.cur, st.in_fetch = INPUT, True
        return
    _note(st, INPUT, told[TOLD["fetch_end"]])
    st.acc[FETCHES] = st.acc[BOUNDARIES] = 1
    if stage != T_FETCHED:
        _settle_window(st, window, stage)


def _settle_window(st: Books, window: Any, stage: int) -> None:
    """`settle_told` for a step whose window is open."""
    acc, told = st.acc, st.told
    _note(st, BETWEEN, told[TOLD["open"]])
    acc[OPEN] = st.mark
    acc[SAMPLES] = told[TOLD["samples"]]
    acc[BOUNDARIES] += 2
    window.group, window.batches = True, 0
    st.window = st.no_forward = True
    st.fresh_batches = 1
    st.cur = H2D
    if stage == T_MOVING:
        return
    _note(st, H2D, told[TOLD["h2d_end"]] or st.mark)
    st.cur = RESIDUAL
    if stage in (T_READY, T_TRAINING, T_ZEROING):
        return
    if stage < T_CALLED:
        settle_call(st, stage)
        return
    if stage == T_INFERRING:
        _note(st, RESIDUAL, told[TOLD["forward_begin"]])
        st.cur = FORWARD
        return
    _note_call(st, told[TOLD["forward_begin"]], told[TOLD["forward_end"]])
    if stage != T_CALLED:
        _settle_backward(st, window, stage)


def _settle_backward(st: Books, window: Any, stage: int) -> None:
    """`settle_told` from the backward on."""
    acc, told = st.acc, st.told
    _note(st, RESIDUAL, told[TOLD["backward_begin"]])
    acc[BOUNDARIES] += 1
    if stage == T_BACKWARD:
        st.cur, st.in_backward = BACKWARD, True
        window.resume_backward(RESIDUAL)
        return
    _note(st, BACKWARD, told[TOLD["backward_end"]])
    acc[MICROBATCHES] = 1
    st.fresh_batches = 0
    if stage == T_BACKWARDED:
        return
    _note(st, RESIDUAL, told[TOLD["optimizer_begin"]])
    st.cur = OPTIMIZER
    if stage == T_OPTIMIZER:
        return
    acc[UPDATES] = 1
    st.took_effect = True
    if stage == T_CLOSING:
        _note(st, OPTIMIZER, told[TOLD["optimizer_end"]])
        st.cur = RESIDUAL


def settle_call(st: Books, stage: int) -> None:
    """Book what the fast path of the timed calls noted inside a trainer's training step."""
    if stage == OPENED:
        st.no_forward = False
        return
    raw = st.raw
    if stage == IN_FORWARD:
        _note(st, RESIDUAL, raw[RAW["forward_begin"]])
        st.acc[BOUNDARIES] += 1
        st.cur, st.no_forward = FORWARD, True
        return
    _note_call(st, raw[RAW["forward_begin"]], raw[RAW["forward_end"]])
    if stage == FORWARDED:
        return
    # A gradient inside the training step: of a penalty, say.
    _note(st, RESIDUAL, raw[RAW["backward_begin"]])
    st.acc[BOUNDARIES] += 1
    if stage == IN_BACKWARD:
        st.cur, st.in_backward, st.no_forward = BACKWARD, True, True
        return
    _note(st, BACKWARD, raw[RAW["backward_end"]])
    st.acc[MICROBATCHES] += st.fresh_batches
    st.fresh_batches = 0
    if stage != BACKWARDED:
        _settle_inner_update(st, stage)


def _settle_inner_update(st: Books, stage: int) -> None:
    """The training step has stepped the trainer's own optimizer itself."""
    raw = st.raw
    _note(st, RESIDUAL, raw[RAW["optimizer_begin"]])
    if stage == IN_OPTIMIZER:
        st.cur, st.in_optimizer, st.took_effect = OPTIMIZER, True, False
        return
    _note(st, OPTIMIZER, raw[RAW["optimizer_end"]])
    st.acc[UPDATES] += 1


def _note_call(st: Books, begin: int, end: int) -> None:
    """Book a model call."""
    st.acc[BOUNDARIES] += 1
    _note(st, RESIDUAL, begin)
    _note(st, FORWARD, end)
