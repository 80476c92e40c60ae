"""The step state: marked steps, steps that raise, and collections, on top of `Computing`."""

from __future__ import annotations

import types
from typing import Any

from traceml_ai.probe.columns import (
    BACKWARD,
    BETWEEN,
    BOUNDARIES,
    CAUSES,
    CHECKPOINT,
    CLOSING,
    FORWARD,
    GC_BETWEEN,
    GC_COUNT,
    GC_INSIDE,
    GENERAL,
    H2D,
    HANDLERS,
    MICROBATCHES,
    OPENED,
    OPTIMIZER,
    OWN,
    RESIDUAL,
    RESIDUAL_CHECKPOINT,
    RESIDUAL_VALIDATION,
    TAIL,
    UPDATES,
    USER,
    VALIDATION,
    WINDOW_COLUMNS,
)
from traceml_ai.probe.computing import Computing
from traceml_ai.probe.safety import safely


class StepState(Computing):
    """All that is measured in this process; see `Books` for the arguments."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        # A class that was patched may be pickled by value; what travels is inert and builtin.
        return (types.SimpleNamespace, (), {"stage": GENERAL, "ident": -1, "no_forward": True})

    def begin_marked(self) -> bool:
        """`trace_step` was entered; False when it is nested in another and does nothing."""
        if self.stage >= OPENED or (self.marked and self.window):
            return False
        self.open_marked()
        return True

    def end_marked(self, *, failed: bool) -> None:
        """`trace_step` was left."""
        if failed:
            self.abort()
        else:
            self.close_marked()

    def open_marked(self) -> None:
        """`trace_step` was entered."""
        now = self.advance()
        acc = self.acc
        if self.cur == TAIL:
            self.leave_tail(self.base())
        if not self.marked:
            self.begin_marking()
        if self.pending is not None:
            self.trains(self.pending)
        acc[BOUNDARIES] += 1
        self.open_window(now)

    def begin_marking(self) -> None:
        """From here on only marked steps count: what was inferred of this one is taken back."""
        acc = self.acc
        self.marked = True
        self.hand_open = False
        for column in (H2D, FORWARD, BACKWARD, OPTIMIZER, RESIDUAL):
            acc[BETWEEN] += acc[column]
            acc[column] = 0
        acc[MICROBATCHES] = acc[UPDATES] = 0

    def close_marked(self) -> None:
        """`trace_step` was left normally."""
        now = self.advance()
        if self.cur == TAIL:
            self.leave_tail(self.base())
        self.window = False
        self.cur = BETWEEN
        self.close(now)

    def abort(self) -> None:
        """The step raised: it is counted as aborted, its time is between steps."""
        self.discard()
        self.aborted += 1

    def discard(self) -> None:
        """What was begun is no step: its time is between steps."""
        self.advance()
        acc = self.acc
        if self.cur == TAIL:
            self.leave_tail(self.base())
        lost = sum(acc[i] for i in (*WINDOW_COLUMNS, *USER))
        kept = {i: acc[i] for i in (*CAUSES, OWN, BETWEEN)}
        kept[BETWEEN] += lost
        kept[VALIDATION] += acc[RESIDUAL_VALIDATION]
        kept[CHECKPOINT] += acc[RESIDUAL_CHECKPOINT]
        self.reset()
        for column, value in kept.items():
            acc[column] = value
        self.rare = True
        if self.device is not None:
            self.device.drop()
        self.backwards = 0
        self.pending = self.snapshot = None
        self.window = self.hand_open = False
        self.fresh_batches = 0
        self.in_backward = self.no_forward = self.in_optimizer = False
        self.cur = BETWEEN

    @safely
    def raised(self, before: int) -> None:
        """A timed call raised. A marked step is ended by its own exit, an inferred one here."""
        if not self.marked:
            self.abort()
            return
        self.advance()
        self.in_backward = self.no_forward = self.in_optimizer = False
        self.cur = before

    @safely
    def gc_start(self) -> None:
        """A collection begins on the training thread."""
        if self.stage == CLOSING:
            return
        self.gc_since = self.advance()
        self.rare = True
        self.gc_before = self.cur
        if self.cur in (BETWEEN, HANDLERS):
            self.cur = GC_BETWEEN

    @safely
    def gc_stop(self) -> None:
        """A collection ended."""
        if not self.gc_since:
            return
        now = self.advance()
        self.cur = self.gc_before
        if self.window and self.gc_since:
            self.acc[GC_INSIDE] += now - self.gc_since
            self.acc[GC_COUNT] += 1
        self.gc_since = 0
