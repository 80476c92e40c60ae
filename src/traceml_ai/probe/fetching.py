"""Fetches: input wait, or an evaluation's, or none.

A loader's pass is *unknown* until a backward follows one of its batches (training) or an evaluating
model call does (validation). What was counted meanwhile is moved as a whole when it turns out to
be no training.
"""

from __future__ import annotations

from traceml_ai.probe.columns import (
    BETWEEN,
    BOUNDARIES,
    EVAL,
    EXCLUSIVE,
    FETCHES,
    FIRST_BIT,
    FLAGS,
    FORWARD,
    IDLE,
    INPUT,
    LOADER,
    MAX_ITERATIONS,
    MICROBATCHES,
    RESIDUAL,
    SAMPLES,
    TAIL,
    TRAIN,
    UNKNOWN,
)
from traceml_ai.probe.iteration import Iteration
from traceml_ai.probe.plain import gone
from traceml_ai.probe.safety import safely
from traceml_ai.probe.settling import Settling


class Fetching(Settling):
    """Batches: which loader trains, and what waiting for its batches took."""

    __slots__ = ()

    def new_iteration(self, iterator: object, loader: object = None) -> None:
        """A loader was asked for a new pass; ``iterator`` may be an old one (persistent workers)."""
        pending = self.pending
        if pending is not None and (pending.loader is loader or pending.is_over()):
            # A batch was looked at and nothing came of it, or an evaluation was left early.
            self.not_training(self._column_of_pending())
        if len(self.iterations) >= MAX_ITERATIONS:
            self.iterations.clear()
        self.iterator = id(iterator)
        self.train_iterator = gone
        self.iteration = self.iterations[id(iterator)] = Iteration(loader, iterator)

    def _column_of_pending(self) -> int:
        """What the time since the pending fetch was, now that no backward followed it."""
        return self.eval_column() if self.forward_since_pending() else BETWEEN

    def _iteration_of(self, iterator: object) -> Iteration:
        found = self.iterations.get(id(iterator))
        if found is None:
            self.new_iteration(iterator)
            return self.iteration
        self.iterator = id(iterator)
        self.iteration = found
        self.train_iterator = found.iterator if found.role == TRAIN else gone
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
            self.leave_tail(self.eval_column() if iteration.role == EVAL else self.base())
        if self.hand_open:
            self.end_hand_step()
        if iteration.role == EVAL:
            before = self.cur
            self.cur = self.eval_column()
            self.rare = True
            return before
        if iteration.role == UNKNOWN:
            self._begin_unknown(iteration)
        before = self.cur
        self.cur = INPUT
        return before

    def _begin_unknown(self, iteration: Iteration) -> None:
        """Remember the books as they are, so that this batch can still be taken out of training."""
        if self.pending is iteration and self.forward_since_pending():
            # A model call and no backward: somebody evaluates with gradients on.
            self.not_training(self.eval_column())
        if self.pending is None:
            self.pending = iteration
            self.snapshot = self.acc[:]
            self.snapshot_window = self.window

    def forward_since_pending(self) -> bool:
        """Whether a model was called since the pending fetch."""
        return self.snapshot is not None and self.acc[FORWARD] > self.snapshot[FORWARD]

    def take_batch(self) -> None:
        """A window without a fetch trains: on a batch fetched ahead, or used before, or the loop's own."""
        if not self.fresh_batches:
            self.made_batch = True
        elif not self.window:
            self.took_ahead = True

    def use_batch(self) -> None:
        """The backward of a batch: a microbatch, unless that batch had one before."""
        if self.fresh_batches:
            self.fresh_batches -= 1
        elif self.made_batch:
            self.made_batch = False
        else:
            return
        self.acc[MICROBATCHES] += 1

    def not_training(self, column: int) -> None:
        """Move everything since the pending fetch to ``column``: it was no training."""
        snapshot = self.snapshot
        if snapshot is None:
            return
        acc = self.acc
        moved = sum(acc[i] - snapshot[i] for i in EXCLUSIVE)
        boundaries = acc[BOUNDARIES]
        acc[:] = snapshot
        acc[BOUNDARIES] = boundaries
        acc[column] += moved
        self.rare = True
        self.pending = self.snapshot = None
        self.fresh_batches = 0
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
            acc[FLAGS] |= FIRST_BIT
        self.fetched = True
        self.fresh_batches += 1
        self.count_samples(data)
        if self.marked:
            self.cur = before
            return
        if not self.window:
            self.open_window(now)
        self.cur = RESIDUAL

    @safely
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
        # A pass of one batch whose end is fetched ahead (as Accelerate does) has not been used yet.
        if self.pending is iteration and (iteration.fetches > 1 or self.forward_since_pending()):
            self.not_training(self._column_of_pending())

    @safely
    def abort_fetch(self, before: int) -> None:
        """The loader raised: no batch, and no step."""
        self.advance()
        self.in_fetch = False
        self.cur = before

    def count_samples(self, data: object) -> None:
        """Add the number of samples of a batch."""
        self.acc[SAMPLES] += self.samples_in(data)

    def samples_in(self, data: object) -> int:
        """Number of samples in a batch; 0 where it can't be told."""
        samples = self.batch_samples(data) if self.batch_samples is not None else None
        return samples or 0

    def batch_is_fetched(self) -> bool:
        """Whether the step being written by hand began with a fetch, as the next one will."""
        return self.newest()[FETCHES] > 0

    def end_hand_step(self) -> None:
        """The next step (or something else) begins: the one by hand ends here."""
        self.hand_open = self.window = self.fetched = False
        self.merge_into_last(self.mark)
        self.cur = BETWEEN
