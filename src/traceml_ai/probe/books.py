"""The books: one current column, to which each boundary adds the time since the last one.

So nothing is counted twice and nothing is lost. `StepState` is built up in five steps: `Plain` (the fast
path), `Books` (time and records), `Settling` (from the one to the other), `Fetching` (loaders), and
`Computing` (model, backward, optimizer).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any, Protocol

from traceml_ai.probe.columns import (
    ALLOCATED,
    BETWEEN,
    BOUNDARIES,
    CLOSE,
    CLOSING,
    EXCLUSIVE,
    FETCHES,
    FLAGS,
    GC_BETWEEN,
    GC_COUNT,
    GC_INSIDE,
    GENERAL,
    IDLE,
    MARKED_BIT,
    MICROBATCHES,
    NONE,
    OFF,
    OPEN,
    OWN,
    RAW_BIT,
    RESERVED,
    RESIDUAL,
    RESIDUAL_VALIDATION,
    TAIL,
    TAIL_BIT,
    TOLD_BIT,
    TRAIN,
    UPDATES,
    VALIDATION,
    ZERO,
    ZERO_HOT,
)
from traceml_ai.probe.device import DeviceTimer
from traceml_ai.probe.iteration import Iteration
from traceml_ai.probe.plain import Plain
from traceml_ai.probe.updates import Watch
from traceml_ai.schema.step import HOT_COLUMNS, INDEX, decode_raw

_MEMORY_EVERY = 8


class Log(Protocol):
    """Where closed steps go (`traceml_ai.spool.writer.StepLogWriter`, or a list in tests)."""

    def append(self, values: Sequence[int]) -> None:
        """Add a record; columns beyond the values given are zero."""

    def amend(self, values: list[int]) -> None:
        """Replace the newest record."""

    def newest(self) -> list[int]:
        """The newest record."""

    def place(self) -> tuple[Any, int, int]:
        """The memory of integers that records lie in, how many do, and how many may; none: not to be had."""


class Books(Plain):
    """The current column, what was booked so far, and the log.

    Args:
        ident: Identifier of the training thread; calls on other threads are not measured.
        clock: Nanoseconds, monotonic.
        open_log: Called at the first closed step; returns where steps go.
        grad_enabled: ``torch.is_grad_enabled``.
        batch_samples: Number of samples in a fetched batch, or None.
    """

    __slots__ = (
        "aborted",
        "acc",
        "adoptable",
        "backwards",
        "batch_samples",
        "by_hand",
        "candidate",
        "cur",
        "device",
        "fetched",
        "foreign",
        "framework",
        "fresh_batches",
        "gc_before",
        "gc_since",
        "grad_enabled",
        "hand_open",
        "in_backward",
        "in_closure",
        "in_fetch",
        "in_optimizer",
        "iteration",
        "iterations",
        "iterator",
        "log",
        "made_batch",
        "mark",
        "memory",
        "no_forward",
        "on_fail",
        "on_first_forward",
        "on_loader",
        "on_missing_forward",
        "open_log",
        "optimizers",
        "pending",
        "rare",
        "repeats",
        "single",
        "snapshot",
        "snapshot_window",
        "step_optimizers",
        "took_ahead",
        "took_effect",
        "versioned",
        "was_ahead",
        "watches",
        "window",
    )

    def __init__(
        self,
        *,
        ident: int,
        open_log: Callable[[], Log],
        grad_enabled: Callable[[], bool],
        clock: Callable[[], int] = perf_counter_ns,
        batch_samples: Callable[[Any], int | None] | None = None,
    ) -> None:
        super().__init__(ident, clock)
        self.open_log = open_log
        self.grad_enabled = grad_enabled
        self.batch_samples = batch_samples
        self.acc = ZERO[:]
        self.cur = BETWEEN
        self.mark = clock()
        self.foreign = 0  # backwards on other threads than the measured one
        self.adoptable = True  # no backward on the training thread yet
        self.log: Log | None = None
        self.aborted = 0
        self.backwards = 0  # since the last update
        self.optimizers = 0  # optimizer objects that exist
        # Where we are.
        self.framework = NONE
        self.by_hand = False  # in a framework: its user calls the optimizers, not its trainer
        self.window = False
        self.hand_open = False
        self.no_forward = False
        self.in_backward = False
        self.in_fetch = False
        self.in_optimizer = False
        self.in_closure = False  # a backward ran inside this `optimizer.step`
        self.took_effect = False
        self.fetched = False  # a training batch was fetched since the last close
        self.fresh_batches = 0  # fetched, and no backward yet
        # This window, or the last one, began with a batch fetched before it; this one's was never fetched.
        self.took_ahead = self.was_ahead = self.made_batch = False
        self.gc_since = 0
        self.gc_before = BETWEEN
        # Which loader, which model, which optimizers.
        self.iterator = 0  # id of the loader iterator that is in use
        self.iteration = Iteration()
        self.iterations: dict[int, Iteration] = {}
        self.pending: Iteration | None = None
        self.snapshot: list[int] | None = None
        self.snapshot_window = False
        self.candidate: Callable[[], Any] | None = None  # a model called last, not measured yet
        self.step_optimizers: list[int] = []
        self.single = 0
        self.repeats = 0
        self.rare = False  # a column beyond the hot ones was written in this step
        self.on_missing_forward: Callable[[object], None] | None = None
        self.on_first_forward: Callable[[], None] | None = None
        self.on_loader: Callable[[object], None] | None = None
        self.on_fail: Callable[[str, BaseException], None] | None = None
        self.watches: dict[int, Watch] = {}
        self.versioned: dict[int, Any] = {}  # id of an optimizer -> weak reference to a parameter
        self.device: DeviceTimer | None = None
        self.memory: Callable[[], tuple[int, int]] | None = None

    def next_stage(self) -> int:
        """After a step was closed in the books: whether the next one may be plain."""
        raise NotImplementedError

    def make_room(self) -> None:
        """Find out which records can be written in place."""
        if self.log is not None:
            self.ints, self.records, capacity = self.log.place()
            self.room = min(capacity, self.records + self.next_chore - self.step - 1)

    def advance(self) -> int:
        """Book the time since the last boundary; returns now."""
        if self.stage >= IDLE:
            self.settle()
        now = self.clock()
        self.acc[self.cur] += now - self.mark
        self.mark = now
        return now

    def leave_tail(self, column: int) -> None:
        """Decide what the time after the last evaluating call was."""
        acc = self.acc
        acc[column] += acc[TAIL]
        acc[TAIL] = 0
        self.cur = self.base()

    def open_window(self, now: int) -> None:
        """An inferred or marked step begins."""
        self.window = True
        self.acc[OPEN] = now
        self.cur = RESIDUAL
        if self.device is not None:
            self.device.open()

    def base(self) -> int:
        """The column of unattributed time: inside the window or between steps."""
        return RESIDUAL if self.window else BETWEEN

    def eval_column(self) -> int:
        """The column of an evaluation here: part of a marked step, else between steps."""
        return RESIDUAL_VALIDATION if self.window and self.marked else VALIDATION

    def enter(self, column: int) -> int:
        """Enter a plain column (checkpoint, loader, named phase, ...); returns what to `leave` to."""
        self.advance()
        if self.cur == TAIL:
            self.leave_tail(self.base())
        before = self.cur
        self.cur = column
        self.rare = True
        self.acc[BOUNDARIES] += 1
        return before

    def leave(self, before: int) -> None:
        """Go back to the column that was current before."""
        self.advance()
        self.cur = before

    # -- closing ------------------------------------------------------------------------------

    def close(self, now: int) -> None:
        """Write the record of the step that ends now."""
        self.stage = CLOSING
        acc = self.acc
        if self.pending is not None:
            self.trains(self.pending)
        if not self.step:
            self._before_first()
        acc[CLOSE] = now
        if self.marked:
            acc[FLAGS] |= MARKED_BIT
        if self.device is not None:
            self._sample_memory()
        if self.rare:
            self.append(acc)
            acc[:] = ZERO
            self.rare = False
        else:
            self.append(acc[:HOT_COLUMNS])
            acc[:HOT_COLUMNS] = ZERO_HOT
        if self.device is not None:
            self.device.close(self.step)
        self.step += 1
        self.was_ahead, self.took_ahead = self.took_ahead, False
        self.fetched = self.made_batch = False
        # A loop that fetches one batch ahead has the next one already.
        self.fresh_batches = min(1, self.fresh_batches)
        self.room = 0  # not known any more
        if self.step >= self.next_chore:
            self.next_chore = self.chore(self.step)
        self.mark = end = self.clock()
        acc[OWN] += end - now
        self.stage = GENERAL if self.framework else self.next_stage()

    def trains(self, iteration: Iteration) -> None:
        """A step followed the pending fetch: this loader is training input."""
        iteration.role = TRAIN
        if iteration is self.iteration:
            self.train_iterator = iteration.iterator
        self.pending = self.snapshot = None
        loader, iteration.loader = iteration.loader, None
        if loader is not None and self.on_loader is not None:
            self.on_loader(loader)

    def _sample_memory(self) -> None:
        """Device memory at the end of every few steps: reading it costs more than a step's books."""
        if self.memory is None or self.step % _MEMORY_EVERY:
            return
        self.acc[ALLOCATED], self.acc[RESERVED] = self.memory()
        self.rare = True

    def _before_first(self) -> None:
        """The first step closes: open the log, and leave to start-up what is not the loop's."""
        self.log = self.open_log()
        self.append = self.log.append
        self.rare = True
        self.acc[BETWEEN] = self.acc[GC_BETWEEN] = self.acc[OWN] = 0

    def merge_into_last(self, now: int) -> None:
        """The step went on: what lay between is inside it after all."""
        if self.pending is not None:
            self.trains(self.pending)
        last, acc = self.newest(), self.acc
        for column in EXCLUSIVE:
            last[column] += acc[column]
        last[RESIDUAL] += acc[BETWEEN]
        last[BETWEEN] -= acc[BETWEEN]
        for column in (GC_INSIDE, GC_COUNT, UPDATES, BOUNDARIES):
            last[column] += acc[column]
        if not (last[FETCHES] or self.was_ahead):  # else it is still the same batch
            last[MICROBATCHES] += acc[MICROBATCHES]
        elif self.took_ahead:
            self.fresh_batches += acc[MICROBATCHES]
        last[FLAGS] |= acc[FLAGS]
        last[CLOSE] = now
        if self.device is not None:
            self.device.merge()
        if self.log is not None:
            self.log.amend(last)
        self.reset()

    def newest(self) -> list[int]:
        """The record that was written last; zeros when there is none."""
        if self.log is None or not self.step:
            return ZERO[:]
        record = self.log.newest()
        if record[FLAGS] & RAW_BIT:
            plain, record = record, ZERO[:]
            told = bool(plain[FLAGS] & TOLD_BIT)
            for name, value in decode_raw(plain, told=told).items():
                record[INDEX[name]] = value
        return record

    def reset(self) -> None:
        """Begin a new record."""
        self.acc[:] = ZERO
        self.fetched = self.took_ahead = self.made_batch = False

    def book_own(self) -> None:
        """Book the time since the last boundary as ours."""
        now = self.clock()
        self.acc[OWN] += now - self.mark
        self.mark = now

    def fail(self, probe: str, error: BaseException) -> None:
        """An error of ours: stop measuring, for good, and leave the training alone.

        What fails while that is cleared away is not told: the first one is what went wrong.
        """
        was_on = self.ident != -1
        self.turn_off()
        if was_on and self.on_fail is not None:
            with contextlib.suppress(Exception):  # telling is not worth harming
                self.on_fail(probe, error)

    def turn_off(self) -> None:
        """No call is timed from here on."""
        self.framework = NONE
        self.ident = -1
        self.adoptable = False
        self.cur = OFF
        self.telling = None
        self.stage = self.resting = GENERAL

    def tail_record(self) -> list[int]:
        """What followed the last step, for a process that ends in order."""
        now = self.advance()
        acc = self.acc
        if self.cur == TAIL:
            self.leave_tail(self.base())
        acc[FLAGS] |= TAIL_BIT
        acc[CLOSE] = now
        return acc[:]
