"""Plain steps: a fetch, a forward, a backward and an update, in that order, and nothing else.

Once twenty steps went by like that, the next ones are only noted as time stamps (`Plain.raw`) and
written as such. Whatever else happens first brings the books up to date (`Settling.settle`) and
goes on in them.

In a real loop the caches are cold, and this more than halves what a step costs. For the same reason
the few attributes that a plain step touches are declared here, in the first base class: its slots
lie together in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from traceml_ai.probe.columns import (
    CLOSING,
    GENERAL,
    IDLE,
    T_HANDLERS,
)
from traceml_ai.schema.step import RAW_COLUMNS, TOLD_COLUMNS


def _no_log(_values: Sequence[int]) -> None:
    raise RuntimeError("no step was closed yet")


def gone() -> None:
    """A reference to nothing."""


class Plain:
    """The attributes that a plain step touches.

    Args:
        ident: Identifier of the training thread.
        clock: Nanoseconds, monotonic.
    """

    __slots__ = (
        "append",
        "chore",
        "clock",
        "ident",
        "marked",
        "next_chore",
        "plain_optimizer",
        "plain_parameter",
        "raw",
        "resting",
        "stage",
        "step",
        "targets",
        "telling",
        "told",
        "train_iterator",
    )

    def __init__(self, ident: int, clock: Callable[[], int]) -> None:
        self.ident = ident
        self.clock = clock
        self.stage = GENERAL
        self.resting = IDLE  # IDLE, or GENERAL: no step is to be plain any more
        self.raw = [0] * len(RAW_COLUMNS)
        self.step = 0
        self.marked = False
        self.append: Callable[[Sequence[int]], None] = _no_log  # replaced at the first step
        self.chore: Callable[[int], int] = lambda _step: 1 << 62
        self.next_chore = 1
        self.train_iterator = 0  # id of the loader iterator in use, when its role is training
        self.targets: dict[int, object] = {}  # measured models by id
        # The optimizer that stepped last (its id), and the parameter whose version counter shows that.
        self.plain_optimizer = 0
        self.plain_parameter: Callable[[], Any] = gone
        self.told = [0] * len(TOLD_COLUMNS)
        self.telling: Any = None  # the `Window` whose plain steps are noted in `told`

    def close_plain(self, now: int) -> None:
        """Write a plain step from its time stamps."""
        self.stage = CLOSING
        raw = self.raw
        raw[0] = now
        self.append(raw)
        self.step = step = self.step + 1
        if step >= self.next_chore:
            self.next_chore = self.chore(step)
        raw[9] = end = self.clock()
        raw[8] = end - now
        self.stage = IDLE
        if self.resting != IDLE:
            self.leave_plain()

    def close_told(self, now: int, global_step: int) -> None:
        """Write a trainer's plain step from its time stamps."""
        self.stage = CLOSING
        told = self.told
        told[0] = now
        told[17] = global_step + 1
        self.append(told)
        self.step = step = self.step + 1
        if step >= self.next_chore:
            self.next_chore = self.chore(step)
        told[9] = end = self.clock()
        told[8] = end - now
        self.stage = T_HANDLERS
        if self.resting != IDLE:
            self.leave_plain()

    def leave_plain(self) -> None:
        """Something on another thread (or an error of ours) ends the plain steps."""
        if self.ident == -1:
            self.stage = GENERAL
        else:
            self.settle()

    def settle(self) -> None:
        """Leave the fast path: book what it noted of the step that is under way."""
        raise NotImplementedError
