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

from traceml_ai.probe.columns import CLOSING, GENERAL, IDLE
from traceml_ai.schema.step import N_COLUMNS, RAW, RAW_COLUMNS, TOLD_COLUMNS
from traceml_ai.spool.layout import COUNT_AT, FIRST_AT

CLOSE, OWN, BEGIN = RAW["close"], RAW["own"], RAW["begin"]  # where `Plain.told` has them too


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
        "ints",
        "marked",
        "next_chore",
        "plain_model",
        "plain_optimizer",
        "plain_parameter",
        "raw",
        "records",
        "resting",
        "room",
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
        # The loader iterator in use, when its role is training. What a plain step has to recognise is
        # referred to weakly: in a loop this costs a third of what `id()` does.
        self.train_iterator: Callable[[], Any] = gone
        self.targets: dict[int, Callable[[], Any]] = {}  # measured models by id, referred to weakly
        # What was called last: the model, and the optimizer with the parameter whose version counter
        # shows that it stepped.
        self.plain_model: Callable[[], Any] = gone
        self.plain_optimizer: Callable[[], Any] = gone
        self.plain_parameter: Callable[[], Any] = gone
        # The log's memory. Its records below `room` are written in place; with the next one more is due.
        self.ints: Any = None
        self.records = self.room = 0
        self.told = [0] * len(TOLD_COLUMNS)
        self.telling: Any = None  # the `Window` whose plain steps are noted in `told`

    def close_noted(self, noted: list[int], now: int, then: int) -> None:
        """Write a plain step from its time stamps.

        Args:
            noted: They: `raw` or `told`.
            now: When it ended.
            then: The stage that follows.
        """
        self.stage = CLOSING
        noted[CLOSE] = now
        n = self.records
        if n < self.room:
            ints = self.ints
            at = FIRST_AT + n * N_COLUMNS
            for value in noted:
                ints[at] = value
                at += 1
            self.records = ints[COUNT_AT] = n + 1
            self.step += 1
        else:
            self._append_noted(noted)
        noted[BEGIN] = end = self.clock()
        noted[OWN] = end - now
        self.stage = then
        if self.resting != IDLE:
            self.leave_plain()

    def _append_noted(self, noted: list[int]) -> None:
        """Add the record as any other, and do what is due; then there may be room again."""
        self.append(noted)
        self.step = step = self.step + 1
        if step >= self.next_chore:
            self.next_chore = self.chore(step)
        self.make_room()

    def make_room(self) -> None:
        """Find out which records can be written in place."""
        raise NotImplementedError

    def leave_plain(self) -> None:
        """Something on another thread (or an error of ours) ends the plain steps."""
        if self.ident == -1:
            self.stage = GENERAL
        else:
            self.settle()

    def settle(self) -> None:
        """Leave the fast path: book what it noted of the step that is under way."""
        raise NotImplementedError
