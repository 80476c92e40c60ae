"""From the fast path of plain steps to the general books, and back."""

from __future__ import annotations

from traceml_ai.probe.books import Books
from traceml_ai.probe.columns import (
    BACKWARD,
    BACKWARDED,
    BETWEEN,
    BOUNDARIES,
    FETCHED,
    FETCHES,
    FORWARD,
    FORWARDED,
    GENERAL,
    IDLE,
    IN_BACKWARD,
    IN_FETCH,
    IN_FORWARD,
    IN_OPTIMIZER,
    INPUT,
    MICROBATCHES,
    OPEN,
    OPENED,
    OPTIMIZER,
    OWN,
    RAW_BIT,
    RAW_MARKED_BIT,
    RESIDUAL,
    SAMPLES,
    SPLIT_AFTER_STEPS,
    UPDATES,
)
from traceml_ai.probe.plain import gone
from traceml_ai.probe.telling import settle_call, settle_told
from traceml_ai.schema.step import RAW


class Settling(Books):
    """When steps are plain, and what is booked when one turns out not to be."""

    __slots__ = ()

    def settle(self) -> None:
        """Leave the fast path: book what it noted of the step that is under way."""
        stage, self.stage = self.stage, GENERAL
        if self.telling is not None:
            telling, self.telling = self.telling, None
            settle_told(self, telling, stage)
            return
        if self.framework:
            settle_call(self, stage)
            return
        acc, raw = self.acc, self.raw
        acc[OWN] = raw[RAW["own"]]
        self.mark = raw[RAW["begin"]]
        if stage == IDLE:
            return
        self._note(BETWEEN, "fetch_begin")
        if stage == IN_FETCH:
            self.cur, self.in_fetch = INPUT, True
            return
        self._note(INPUT, "fetch_end")
        self.cur = BETWEEN
        acc[FETCHES] = 1
        acc[SAMPLES] = raw[RAW["samples"]]
        acc[BOUNDARIES] = 4
        self.fetched = True
        self.fresh_batches += 1
        if stage != FETCHED:
            self._settle_window(stage)

    def _note(self, column: int, stamp: str) -> None:
        """Book the time up to a noted stamp."""
        at = self.raw[RAW[stamp]]
        self.acc[column] += at - self.mark
        self.mark = at

    def _settle_window(self, stage: int) -> None:
        """`settle` for a step whose window is open."""
        self._note(BETWEEN, "open")
        self.acc[OPEN] = self.mark
        self.window = True
        self.cur = RESIDUAL
        if stage == OPENED:
            return
        self._note(RESIDUAL, "forward_begin")
        if stage == IN_FORWARD:
            self.cur, self.no_forward = FORWARD, True
            return
        self._note(FORWARD, "forward_end")
        if stage == FORWARDED:
            return
        self._note(RESIDUAL, "backward_begin")
        if stage == IN_BACKWARD:
            self.cur = BACKWARD
            self.in_backward = self.no_forward = True
            return
        self._note(BACKWARD, "backward_end")
        self.acc[MICROBATCHES] = self.backwards = 1
        self.fresh_batches -= 1
        if stage == BACKWARDED:
            return
        self._note(RESIDUAL, "optimizer_begin")
        if stage == IN_OPTIMIZER:
            self.cur, self.in_optimizer, self.took_effect = OPTIMIZER, True, False
            return
        self._note(OPTIMIZER, "optimizer_end")
        self.acc[UPDATES] = 1
        self.backwards = 0

    def next_stage(self) -> int:
        """After a step was closed in the books: whether the next one may be plain."""
        raw = self.raw
        raw[RAW["own"]] = self.acc[OWN]
        raw[RAW["begin"]] = self.mark
        raw[RAW["flags"]] = RAW_MARKED_BIT if self.marked else RAW_BIT
        raw[RAW["boundaries"]] = 5 if self.marked else 4
        one_each = self.repeats == 0 and self.single >= SPLIT_AFTER_STEPS
        if self.marked:
            one_each = self.step >= SPLIT_AFTER_STEPS
        if self.device is not None:
            return GENERAL
        plain = one_each and self.train_iterator is not gone and self.optimizers > 0 and not self.hand_open
        return self.resting if plain else GENERAL
