"""The step state: which phase the training thread is in, and where each step begins and ends.

There is always exactly one current column; every boundary adds the time since the last one to the
column that was current, so nothing is counted twice and nothing is lost. Wrapped calls enter and
leave columns; the rules below decide where a step begins and ends when nobody marked it.

**Inferred steps.** A window opens when a training loader delivered a batch (or, without a loader,
at the first model call or backward after an update) and closes when an optimizer step took effect.
The record is written at once, so a killed process loses nothing, and is amended when another
optimizer turns out to step in the same window (a GAN). Without any optimizer object the backward
writes the record and everything up to the next batch is added to it.

**Which loader trains.** A loader's iteration is *unknown* until a backward follows one of its
batches (training) or an evaluating model call does (validation). What was counted meanwhile is
moved as a whole when it turns out to be no training.

**Plain steps.** Once twenty steps went by in the same order (fetch, forward, backward, update), the
next ones are only noted as time stamps (`StepState.raw`), and written as such. Whatever else
happens first brings the books up to date (`settle`) and goes on in them. In a real loop the caches
are cold, and this halves what a step costs.

Everything here runs on the step path. State that the patches read is in plain slots.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Protocol

from traceml_ai.probe.updates import Watch
from traceml_ai.schema.step import (
    EXCLUSIVE_COLUMNS,
    HOT_COLUMNS,
    INDEX,
    N_COLUMNS,
    RAW,
    USER_SLOTS,
    Flags,
    decode_raw,
)

OPEN = INDEX["open_ns"]
CLOSE = INDEX["close_ns"]
INPUT = INDEX["input_wait_ns"]
H2D = INDEX["h2d_ns"]
FORWARD = INDEX["forward_ns"]
BACKWARD = INDEX["backward_ns"]
OPTIMIZER = INDEX["optimizer_ns"]
RESIDUAL = INDEX["residual_other_ns"]
RESIDUAL_VALIDATION = INDEX["residual_validation_ns"]
RESIDUAL_CHECKPOINT = INDEX["residual_checkpoint_ns"]
VALIDATION = INDEX["between_validation_ns"]
CHECKPOINT = INDEX["between_checkpoint_ns"]
GC_BETWEEN = INDEX["between_gc_ns"]
LOADER = INDEX["between_loader_ns"]
HANDLERS = INDEX["between_handlers_ns"]
BETWEEN = INDEX["between_other_ns"]
OWN = INDEX["own_ns"]
GC_INSIDE = INDEX["gc_ns"]
GC_COUNT = INDEX["gc_collections"]
MICROBATCHES = INDEX["microbatches"]
UPDATES = INDEX["updates"]
SAMPLES = INDEX["samples"]
FLAGS = INDEX["flags"]
BOUNDARIES = INDEX["boundaries"]
USER_0 = INDEX["user_0_ns"]
FETCHES = INDEX["fetches"]
GLOBAL_STEP = INDEX["global_step"]

# Time after an evaluating call that belongs to validation only if another such call follows. It
# lies in the record's spare column, which is empty again before a record is written.
TAIL = INDEX["reserved"]
# How far a plain step has come (`StepState.stage`); see `StepState.settle`.
GENERAL, IDLE, FETCHED, OPENED, FORWARDED, BACKWARDED, UPDATED = -1, 0, 1, 2, 3, 4, 5
IN_FETCH, IN_FORWARD, IN_BACKWARD, IN_OPTIMIZER = 11, 12, 13, 14

# `cur` of a process that is not measured (any more): no fast path recognises it.
OFF = -1

_EXCLUSIVE = tuple(INDEX[name] for name in EXCLUSIVE_COLUMNS)
_CAUSES = (VALIDATION, CHECKPOINT, GC_BETWEEN, LOADER, HANDLERS)
_USER = range(USER_0, USER_0 + USER_SLOTS)
_WINDOW = (INPUT, H2D, FORWARD, BACKWARD, OPTIMIZER, RESIDUAL)
_ZERO = [0] * N_COLUMNS
_ZERO_HOT = [0] * HOT_COLUMNS

UNKNOWN, TRAIN, EVAL = 0, 1, 2

_MARKED = int(Flags.MARKED)
_RAW = int(Flags.RAW)
_RAW_MARKED = _RAW | _MARKED
_SKIPPED = int(Flags.UPDATE_SKIPPED)
_FIRST = int(Flags.FIRST_OF_EPOCH)
_TAIL_RECORD = int(Flags.TAIL)
_NO_OPTIMIZER = int(Flags.NO_OPTIMIZER)

# After so many batches with a backward and no update, an existing optimizer is taken to be unused.
_HAND_AFTER_BACKWARDS = 512
# Loaders' passes that are remembered; older ones are looked at anew.
_MAX_ITERATIONS = 64
# So many steps with one update each must have been seen before a second one is split off.
_SPLIT_AFTER_STEPS = 20


class Log(Protocol):
    """Where closed steps go (`traceml_ai.spool.writer.StepLogWriter`, or a list in tests)."""

    def append(self, values: list[int]) -> None:
        """Add a record."""

    def amend(self, values: list[int]) -> None:
        """Replace the newest record."""

    def append_hot(self, values: list[int]) -> None:
        """Add a record of which only the first `HOT_COLUMNS` are given, the rest being zero."""

    def newest(self) -> list[int]:
        """The newest record."""


def _no_log(_values: list[int]) -> None:
    raise RuntimeError("no step was closed yet")


class Iteration:
    """One pass over one loader: its role, and how many batches it gave."""

    __slots__ = ("fetches", "loader", "role")

    def __init__(self, loader: object = None) -> None:
        self.role = UNKNOWN
        self.fetches = 0
        self.loader = loader  # only until its role is known


def _safely(method: Callable[..., None]) -> Callable[..., None]:
    """For what runs while an exception of the user's is on its way, or inside the interpreter."""

    @functools.wraps(method)
    def safe(self: StepState, *args: Any) -> None:
        try:
            if self.ident != -1:
                method(self, *args)
        except Exception as error:  # noqa: BLE001 - ours must not become the user's
            self.fail(method.__name__, error)

    return safe


class StepState:
    """All that is measured in this process.

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
        "append",
        "append_hot",
        "backwards",
        "batch_samples",
        "chore",
        "clock",
        "cur",
        "fetched",
        "fresh_batch",
        "gc_before",
        "gc_since",
        "grad_enabled",
        "hand_open",
        "ident",
        "in_backward",
        "in_fetch",
        "in_optimizer",
        "iteration",
        "iterations",
        "iterator",
        "log",
        "mark",
        "marked",
        "next_chore",
        "no_forward",
        "on_fail",
        "on_loader",
        "on_missing_forward",
        "open_log",
        "optimizers",
        "pending",
        "plain_optimizer",
        "rare",
        "raw",
        "repeats",
        "single",
        "snapshot",
        "snapshot_window",
        "stage",
        "step",
        "step_optimizers",
        "stopped",
        "targets",
        "took_effect",
        "train_iterator",
        "versioned",
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
        self.ident = ident
        self.clock = clock
        self.open_log = open_log
        self.grad_enabled = grad_enabled
        self.batch_samples = batch_samples
        self.acc = _ZERO[:]
        self.cur = BETWEEN
        self.mark = clock()
        self.log: Log | None = None
        self.step = 0
        self.aborted = 0
        self.backwards = 0  # since the last update
        self.optimizers = 0  # optimizer objects that exist
        self.stopped = False
        # Where we are.
        self.window = False
        self.marked = False
        self.hand_open = False
        self.no_forward = False
        self.in_backward = False
        self.in_fetch = False
        self.in_optimizer = False
        self.took_effect = False
        self.fetched = False  # a training batch was fetched since the last close
        self.fresh_batch = False
        self.gc_since = 0
        self.gc_before = BETWEEN
        # Which loader, which model, which optimizers.
        self.iterator = 0  # id of the loader iterator that is in use
        self.train_iterator = 0  # the same, when its role is known to be training
        self.iteration = Iteration()
        self.iterations: dict[int, Iteration] = {}
        self.pending: Iteration | None = None
        self.snapshot: list[int] | None = None
        self.snapshot_window = False
        self.targets: dict[int, object] = {}
        self.step_optimizers: list[int] = []
        self.single = 0
        self.repeats = 0
        self.chore: Callable[[int], int] = lambda _step: 1 << 62
        self.next_chore = 1
        self.append: Callable[[list[int]], None] = _no_log  # replaced at the first step
        self.append_hot: Callable[[list[int]], None] = _no_log
        self.rare = False  # a column beyond the hot ones was written in this step
        self.on_missing_forward: Callable[[], None] | None = None
        self.on_loader: Callable[[object], None] | None = None
        self.on_fail: Callable[[str, BaseException], None] | None = None
        self.watches: dict[int, Watch] = {}
        self.versioned: dict[int, Any] = {}  # id of an optimizer -> weak reference to a parameter
        self.stage = GENERAL
        self.raw = [0] * HOT_COLUMNS
        self.plain_optimizer = 0  # id of the one optimizer that ends plain steps

    def __reduce__(self) -> tuple[Any, ...]:
        # A class that was patched may be pickled by value; what travels is inert and builtin.
        return (types.SimpleNamespace, (), {"stage": GENERAL, "ident": -1, "no_forward": True})

    # -- plain steps --------------------------------------------------------------------------

    def settle(self) -> None:
        """Leave the fast path: book what it noted of the step that is under way."""
        stage, self.stage = self.stage, GENERAL
        acc, raw = self.acc, self.raw
        acc[OWN] = raw[RAW["own"]]
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
        self.fetched = self.fresh_batch = True
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
        self.fresh_batch = False
        if stage == BACKWARDED:
            return
        self._note(RESIDUAL, "optimizer_begin")
        if stage == IN_OPTIMIZER:
            self.cur, self.in_optimizer, self.took_effect = OPTIMIZER, True, False
            return
        self._note(OPTIMIZER, "optimizer_end")
        self.acc[UPDATES] = 1
        self.backwards = 0

    def _next_stage(self) -> int:
        """After a step was closed in the books: whether the next one may be plain."""
        raw = self.raw
        raw[RAW["own"]] = self.acc[OWN]
        raw[RAW["begin"]] = self.mark
        raw[RAW["flags"]] = _RAW_MARKED if self.marked else _RAW
        raw[RAW["boundaries"]] = 5 if self.marked else 4
        one_each = self.repeats == 0 and self.single >= _SPLIT_AFTER_STEPS
        if self.marked:
            one_each = self.step >= _SPLIT_AFTER_STEPS
        plain = one_each and self.train_iterator and self.optimizers > 0 and not self.hand_open
        return IDLE if plain else GENERAL

    # -- boundaries ---------------------------------------------------------------------------

    def _advance(self) -> int:
        """Book the time since the last boundary; returns now."""
        if self.stage >= IDLE:
            self.settle()
        now = self.clock()
        self.acc[self.cur] += now - self.mark
        self.mark = now
        return now

    def _leave_tail(self, column: int) -> None:
        """Decide what the time after the last evaluating call was."""
        acc = self.acc
        acc[column] += acc[TAIL]
        acc[TAIL] = 0
        self.cur = self.base()

    def base(self) -> int:
        """The column of unattributed time: inside the window or between steps."""
        return RESIDUAL if self.window else BETWEEN

    def _eval_column(self) -> int:
        return RESIDUAL_VALIDATION if self.window and self.marked else VALIDATION

    def enter(self, column: int) -> int:
        """Enter a plain column (checkpoint, loader, named phase, ...); returns what to `leave` to."""
        self._advance()
        if self.cur == TAIL:
            self._leave_tail(self.base())
        before = self.cur
        self.cur = column
        self.rare = True
        self.acc[BOUNDARIES] += 1
        return before

    def leave(self, before: int) -> None:
        """Go back to the column that was current before."""
        self._advance()
        self.cur = before

    def enter_cause(self, inside: int, between: int) -> int:
        """Enter a cause that has a column for each side of the window."""
        if self.hand_open:
            self._end_hand_step()
        return self.enter(inside if self.window and self.marked else between)

    def enter_safely(self, inside: int, between: int) -> int:
        """`enter_cause`, whose errors turn measurement off instead of reaching the program."""
        try:
            return self.enter_cause(inside, between)
        except Exception as error:  # noqa: BLE001
            self.fail("between steps", error)
            return BETWEEN

    def leave_safely(self, before: int) -> None:
        """`leave`, whose errors turn measurement off."""
        try:
            if self.ident != -1:
                self.leave(before)
        except Exception as error:  # noqa: BLE001
            self.fail("between steps", error)

    # -- fetching -----------------------------------------------------------------------------

    def new_iteration(self, iterator: object, loader: object = None) -> None:
        """A loader was asked for a new pass; ``iterator`` may be an old one (persistent workers)."""
        if len(self.iterations) >= _MAX_ITERATIONS:
            self.iterations.clear()
        self.iterator = id(iterator)
        self.train_iterator = 0
        self.iteration = self.iterations[id(iterator)] = Iteration(loader)

    def _iteration_of(self, iterator: object) -> Iteration:
        found = self.iterations.get(id(iterator))
        if found is None:
            self.new_iteration(iterator)
            return self.iteration
        self.iterator = id(iterator)
        self.iteration = found
        self.train_iterator = id(iterator) if found.role == TRAIN else 0
        return found

    def enter_fetch(self, iterator: object) -> int:
        """A loader's ``__next__`` begins on the training thread."""
        if self.stage >= IDLE:
            self.settle()
        now = self.clock()
        acc = self.acc
        acc[self.cur] += now - self.mark
        self.mark = now
        self.in_fetch = True
        acc[BOUNDARIES] += 1
        known = id(iterator) == self.iterator
        iteration = self.iteration if known else self._iteration_of(iterator)
        if self.cur == TAIL:
            self._leave_tail(self._eval_column() if iteration.role == EVAL else self.base())
        if self.hand_open:
            self._end_hand_step()
        if iteration.role == EVAL:
            before = self.cur
            self.cur = self._eval_column()
            self.rare = True
            return before
        if iteration.role == UNKNOWN:
            self._begin_unknown(iteration)
        before = self.cur
        self.cur = INPUT
        return before

    def _begin_unknown(self, iteration: Iteration) -> None:
        """Remember the books as they are, so that this batch can still be taken out of training."""
        if self.pending is iteration:
            self._not_training(VALIDATION if self.acc[FORWARD] else BETWEEN)
        if self.pending is None:
            self.pending = iteration
            self.snapshot = self.acc[:]
            self.snapshot_window = self.window

    def _trains(self, iteration: Iteration) -> None:
        """A step followed the pending fetch: this loader is training input."""
        iteration.role = TRAIN
        if iteration is self.iteration:
            self.train_iterator = self.iterator
        self.pending = self.snapshot = None
        loader, iteration.loader = iteration.loader, None
        if loader is not None and self.on_loader is not None:
            self.on_loader(loader)

    def _not_training(self, column: int) -> None:
        """Move everything since the pending fetch to ``column``: it was no training."""
        snapshot = self.snapshot
        if snapshot is None:
            return
        acc = self.acc
        moved = sum(acc[i] - snapshot[i] for i in _EXCLUSIVE)
        boundaries = acc[BOUNDARIES]
        acc[:] = snapshot
        acc[BOUNDARIES] = boundaries
        acc[column] += moved
        self.rare = True
        self.pending = self.snapshot = None
        self.fresh_batch = False
        if not self.marked:
            self.window = self.snapshot_window
        self.fetched = acc[FETCHES] > 0
        self.cur = self.base()

    def leave_fetch(self, before: int, data: object) -> None:
        """A batch arrived."""
        now = self.clock()
        acc = self.acc
        acc[self.cur] += now - self.mark
        self.mark = now
        self.in_fetch = False
        iteration = self.iteration
        iteration.fetches += 1
        if iteration.role == EVAL:
            self.cur = TAIL
            return
        acc[FETCHES] += 1
        if iteration.fetches == 1:
            acc[FLAGS] |= _FIRST
        self.fetched = self.fresh_batch = True
        self.count_samples(data)
        if self.marked:
            self.cur = before
            return
        if not self.window:
            self.window = True
            acc[OPEN] = now
        self.cur = RESIDUAL

    @_safely
    def end_fetch(self, before: int) -> None:
        """The loader had no more batches: ending it is no input wait."""
        if self.stage >= IDLE:
            self.settle()
        now = self.clock()
        iteration = self.iteration
        self.rare = True
        if iteration.role != EVAL:
            self.acc[LOADER] += now - self.mark
        else:
            self.acc[self.cur] += now - self.mark
        self.mark = now
        self.in_fetch = False
        self.cur = before
        if self.pending is iteration:
            self._not_training(VALIDATION if self.acc[FORWARD] else BETWEEN)

    @_safely
    def abort_fetch(self, before: int) -> None:
        """The loader raised: no batch, and no step."""
        self._advance()
        self.in_fetch = False
        self.cur = before

    # -- model, backward, optimizer -----------------------------------------------------------

    def enter_forward(self, training: bool) -> int:
        """The outermost call of a measured model begins."""
        if self.stage >= IDLE:
            self.settle()
        now = self.clock()
        acc = self.acc
        acc[self.cur] += now - self.mark
        self.mark = now
        acc[BOUNDARIES] += 1
        self.no_forward = True
        grad = self.grad_enabled()
        evaluates = not grad and not training
        if self.cur == TAIL:
            self._leave_tail(self.base() if grad else self._eval_column())
        if self.pending is not None and evaluates and not self.in_optimizer:
            self.pending.role = EVAL
            self.pending.loader = None
            self._not_training(VALIDATION)
        if self.hand_open and (evaluates or not self._batch_is_fetched()):
            self._end_hand_step()
        before = self.cur
        if evaluates or not (grad or self.window):
            self.cur = self._eval_column()
            self.rare = True
            return before
        if not self.window and not self.marked:
            self.window = True
            acc[OPEN] = now
            before = RESIDUAL
        if not acc[FETCHES]:
            self.fresh_batch = True
        self.cur = FORWARD if self.window else BETWEEN
        return before

    def leave_forward(self, before: int) -> None:
        """The outermost model call returned."""
        now = self.clock()
        acc = self.acc
        cur = self.cur
        acc[cur] += now - self.mark
        self.mark = now
        self.no_forward = False
        self.cur = before if cur in (FORWARD, BETWEEN) else TAIL

    def enter_backward(self) -> int:
        """The outermost ``backward`` or ``autograd.grad`` begins."""
        if self.stage >= IDLE:
            self.settle()
        now = self.clock()
        acc = self.acc
        acc[self.cur] += now - self.mark
        self.mark = now
        acc[BOUNDARIES] += 1
        self.in_backward = self.no_forward = True
        if self.cur == TAIL:
            self._leave_tail(self.base())
        if self.pending is not None:
            self._trains(self.pending)
        if self.hand_open and not self._batch_is_fetched() and not acc[FORWARD]:
            self._end_hand_step()
        if not self.window and not self.marked:
            # No batch and no model call was seen: the loop's own code made the loss.
            self.window = self.fresh_batch = True
            acc[OPEN] = now
            self.cur = RESIDUAL
        before = self.cur
        if self.window:
            self.cur = BACKWARD
        return before

    def _batch_is_fetched(self) -> bool:
        """Whether the step being written by hand began with a fetch, as the next one will."""
        return self._newest()[FETCHES] > 0

    def leave_backward(self, before: int, *, was_forward: bool) -> None:
        """The outermost backward returned."""
        now = self.clock()
        acc = self.acc
        acc[self.cur] += now - self.mark
        self.mark = now
        self.in_backward = False
        self.no_forward = was_forward
        self.cur = before
        if not self.window:
            return
        self.backwards += 1
        if self.fresh_batch:
            acc[MICROBATCHES] += 1
            self.fresh_batch = False
        if not acc[FORWARD] and self.on_missing_forward is not None:
            self.on_missing_forward()
            self._book_own()
        if self.marked or self.in_optimizer:
            return
        if not self.optimizers or self.backwards > _HAND_AFTER_BACKWARDS:
            acc[FLAGS] |= _NO_OPTIMIZER
            self._close_by_hand(now)

    def enter_optimizer(self) -> int:
        """The outermost ``optimizer.step`` begins."""
        if self.stage >= IDLE:
            self.settle()
        now = self.clock()
        self.acc[self.cur] += now - self.mark
        self.mark = now
        self.acc[BOUNDARIES] += 1
        if self.cur == TAIL:
            self._leave_tail(self.base())
        if not self.window and not self.marked:
            self.window = True
            self.acc[OPEN] = now
            self.cur = RESIDUAL
        before = self.cur
        self.in_optimizer = True
        self.took_effect = False
        self.cur = OPTIMIZER
        return before

    def leave_optimizer(self, before: int, optimizer: object, *, scaled: bool = False) -> None:
        """The outermost ``optimizer.step`` returned; ``took_effect`` says whether it updated."""
        now = self.clock()
        acc = self.acc
        acc[OPTIMIZER] += now - self.mark
        self.mark = now
        self.in_optimizer = False
        self.cur = before
        effect = self.took_effect
        if effect:
            acc[UPDATES] += 1
        elif not scaled:
            return
        else:
            acc[FLAGS] |= _SKIPPED
        self.backwards = 0
        if not self.marked:
            self.close_by_update(now, id(optimizer))

    def watch(self, optimizer: Any) -> Watch:
        """Look at an optimizer's parameters before its step."""
        watch = self.watches.get(id(optimizer))
        if watch is None or watch.optimizer() is not optimizer:
            watch = self.watches[id(optimizer)] = Watch(optimizer)
        watch.look()
        return watch

    def judge(self, optimizer: Any, watch: Watch) -> bool:
        """Whether the step took effect; remembers optimizers that show it in version counters."""
        changed = watch.changed()
        if watch.versioned and watch.parameter is not None:
            self.versioned[id(optimizer)] = watch.parameter
        return changed

    def plain_parameter(self) -> Any:
        """The parameter that shows whether the plain optimizer's step took effect, or None."""
        reference = self.versioned.get(self.plain_optimizer)
        return None if reference is None else reference()

    @_safely
    def leave_odd_optimizer(self, optimizer: Any, changed: bool) -> None:
        """The step of a plain optimizer turned out not to be plain after all."""
        if self.stage >= IDLE:
            self.settle()
        if not changed:
            watch = self.watches.get(id(optimizer))
            # The followed parameter may have been frozen meanwhile: then it tells nothing.
            changed = watch is None or watch.optimizer() is not optimizer or watch.is_stale()
            self.versioned.pop(id(optimizer), None)
        self.took_effect = self.took_effect or changed
        self.leave_optimizer(RESIDUAL, optimizer)

    def count_samples(self, data: object) -> None:
        """Add the number of samples of a batch."""
        self.acc[SAMPLES] += self.samples_in(data)

    def samples_in(self, data: object) -> int:
        """Number of samples in a batch; 0 where it can't be told."""
        samples = self.batch_samples(data) if self.batch_samples is not None else None
        return samples or 0

    # -- closing ------------------------------------------------------------------------------

    def _same_step(self, optimizer: int) -> bool:
        """Whether an update without a new batch belongs to the step that was written last."""
        if self.fetched or not self.step:
            return False
        last = self._newest()
        if last[FLAGS] & _MARKED:
            return False
        if optimizer not in self.step_optimizers:
            return True
        if not last[FETCHES]:
            return False
        return self.repeats > 0 or self.single < _SPLIT_AFTER_STEPS

    def close_by_update(self, now: int, optimizer: int) -> None:
        """An update took effect: it ends a step, or belongs to the one that was written last."""
        if self._same_step(optimizer):
            if optimizer in self.step_optimizers:
                self.repeats += 1
            else:
                self.step_optimizers.append(optimizer)
            self._merge_into_last(now)
        else:
            if len(self.step_optimizers) == 1:
                self.single += 1
            self.step_optimizers[:] = (optimizer,)
            self.plain_optimizer = optimizer
            self.window = False
            self.cur = BETWEEN
            self.close(now)
        self.window = False
        self.cur = BETWEEN

    def _merge_into_last(self, now: int) -> None:
        """The step went on: what lay between is inside it after all."""
        last, acc = self._newest(), self.acc
        for column in _EXCLUSIVE:
            last[column] += acc[column]
        last[RESIDUAL] += acc[BETWEEN]
        last[BETWEEN] -= acc[BETWEEN]
        for column in (GC_INSIDE, GC_COUNT, MICROBATCHES, UPDATES, BOUNDARIES):
            last[column] += acc[column]
        last[FLAGS] |= acc[FLAGS]
        last[CLOSE] = now
        if self.log is not None:
            self.log.amend(last)
        self._reset()

    def _newest(self) -> list[int]:
        """The record that was written last; zeros when there is none."""
        if self.log is None or not self.step:
            return _ZERO[:]
        record = self.log.newest()
        if record[FLAGS] & _RAW:
            plain, record = record, _ZERO[:]
            for name, value in decode_raw(plain).items():
                record[INDEX[name]] = value
        return record

    def _close_by_hand(self, now: int) -> None:
        """A backward of a loop without optimizers: write now, add the rest when the next begins."""
        if self.hand_open:
            self._merge_into_last(now)
        else:
            self.close(now)
        self.hand_open = True
        self.cur = RESIDUAL

    def _end_hand_step(self) -> None:
        """The next step (or something else) begins: the one by hand ends here."""
        self.hand_open = self.window = self.fetched = False
        self._merge_into_last(self.mark)
        self.cur = BETWEEN

    def close(self, now: int) -> None:
        """Write the record of the step that ends now."""
        acc = self.acc
        if not self.step:
            self._before_first()
        acc[CLOSE] = now
        if self.marked:
            acc[FLAGS] |= _MARKED
        if self.rare:
            self.append(acc)
            acc[:] = _ZERO
            self.rare = False
        else:
            self.append_hot(acc[:HOT_COLUMNS])
            acc[:HOT_COLUMNS] = _ZERO_HOT
        self.step += 1
        self.fetched = False
        if self.step >= self.next_chore:
            self.next_chore = self.chore(self.step)
        self.mark = end = self.clock()
        acc[OWN] = end - now
        self.stage = self._next_stage()

    def close_plain(self, now: int) -> None:
        """Write a plain step from its time stamps."""
        raw = self.raw
        raw[0] = now
        self.append_hot(raw)
        self.step += 1
        if self.step >= self.next_chore:
            self.next_chore = self.chore(self.step)
        self.mark = end = self.clock()
        raw[8] = end - now
        raw[9] = end
        if self.stage != GENERAL:  # a chore may have turned us off
            self.stage = IDLE

    def _before_first(self) -> None:
        """The first step closes: open the log, and leave to start-up what is not the loop's."""
        self.log = self.open_log()
        self.append, self.append_hot = self.log.append, self.log.append_hot
        self.rare = True
        self.acc[BETWEEN] = self.acc[GC_BETWEEN] = self.acc[OWN] = 0

    def _reset(self) -> None:
        self.acc[:] = _ZERO
        self.fetched = False

    def _book_own(self) -> None:
        """Book the time since the last boundary as ours."""
        now = self.clock()
        self.acc[OWN] += now - self.mark
        self.mark = now

    # -- marked steps -------------------------------------------------------------------------

    def open_marked(self) -> None:
        """`trace_step` was entered."""
        now = self._advance()
        acc = self.acc
        if self.cur == TAIL:
            self._leave_tail(self.base())
        if not self.marked:
            self._begin_marking()
        if self.pending is not None:
            self._trains(self.pending)
        acc[BOUNDARIES] += 1
        acc[OPEN] = now
        self.window = True
        self.cur = RESIDUAL

    def _begin_marking(self) -> None:
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
        now = self._advance()
        if self.cur == TAIL:
            self._leave_tail(self.base())
        self.window = False
        self.cur = BETWEEN
        self.close(now)

    def abort(self) -> None:
        """The step raised: it is counted as aborted, its time is between steps."""
        self._advance()
        acc = self.acc
        if self.cur == TAIL:
            self._leave_tail(self.base())
        lost = sum(acc[i] for i in (*_WINDOW, *_USER))
        kept = {i: acc[i] for i in (*_CAUSES, OWN, BETWEEN)}
        kept[BETWEEN] += lost
        kept[VALIDATION] += acc[RESIDUAL_VALIDATION]
        kept[CHECKPOINT] += acc[RESIDUAL_CHECKPOINT]
        self._reset()
        for column, value in kept.items():
            acc[column] = value
        self.rare = True
        self.aborted += 1
        self.backwards = 0
        self.pending = self.snapshot = None
        self.window = self.hand_open = self.fresh_batch = False
        self.in_backward = self.no_forward = self.in_optimizer = False
        self.cur = BETWEEN

    @_safely
    def raised(self, before: int) -> None:
        """A timed call raised. A marked step is ended by its own exit, an inferred one here."""
        if not self.marked:
            self.abort()
            return
        self._advance()
        self.in_backward = self.no_forward = self.in_optimizer = False
        self.cur = before

    # -- garbage collection -------------------------------------------------------------------

    @_safely
    def gc_start(self) -> None:
        """A collection begins on the training thread."""
        self.gc_since = self._advance()
        self.rare = True
        self.gc_before = self.cur
        if self.cur == BETWEEN:
            self.cur = GC_BETWEEN

    @_safely
    def gc_stop(self) -> None:
        """A collection ended."""
        now = self._advance()
        self.cur = self.gc_before
        if self.window and self.gc_since:
            self.acc[GC_INSIDE] += now - self.gc_since
            self.acc[GC_COUNT] += 1
        self.gc_since = 0

    def fail(self, probe: str, error: BaseException) -> None:
        """An error of ours: stop measuring, for good, and leave the training alone."""
        self.turn_off()
        if self.on_fail is not None:
            self.on_fail(probe, error)

    def turn_off(self) -> None:
        """No call is timed from here on."""
        self.ident = -1
        self.cur = OFF
        self.stage = GENERAL

    # -- ending -------------------------------------------------------------------------------

    def tail_record(self) -> list[int]:
        """What followed the last step, for a process that ends in order."""
        now = self._advance()
        acc = self.acc
        if self.cur == TAIL:
            self._leave_tail(self.base())
        acc[FLAGS] |= _TAIL_RECORD
        acc[CLOSE] = now
        return acc[:]
