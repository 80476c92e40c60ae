"""Model calls, backwards and updates; where an inferred step ends.

A window opens when a training loader delivered a batch (or, without a loader, at the first model
call or backward after an update) and closes when an optimizer step took effect. The record is
written at once, so a killed process loses nothing, and is amended when another optimizer turns out
to step in the same window (a GAN). Without any optimizer object the backward writes the record and
everything up to the next batch is added to it.
"""

from __future__ import annotations

import weakref
from typing import Any

from traceml_ai.probe.columns import (
    BACKWARD,
    BETWEEN,
    BOUNDARIES,
    DIFFERENTIATING,
    EVAL,
    FETCHES,
    FLAGS,
    FORWARD,
    GENERAL,
    H2D,
    HAND_AFTER_BACKWARDS,
    IDLE,
    MARKED_BIT,
    NO_OPTIMIZER_BIT,
    OPTIMIZER,
    RESIDUAL,
    SKIPPED_BIT,
    SPLIT_AFTER_STEPS,
    TAIL,
    UPDATES,
)
from traceml_ai.probe.fetching import Fetching
from traceml_ai.probe.plain import gone
from traceml_ai.probe.safety import safely
from traceml_ai.probe.updates import Watch


class Computing(Fetching):
    """Forward, backward and optimizer, and the ends of steps that nobody marked."""

    __slots__ = ()

    def enter_cause(self, inside: int, between: int) -> int:
        """Enter a cause that has a column for each side of the window."""
        if self.stage >= IDLE:
            self.settle()
        if self.hand_open:
            self.end_hand_step()
        return self.enter(inside if self.window and self.marked else between)

    def enter_h2d(self) -> int:
        """A copy to the device begins."""
        before = self.enter(H2D if self.window else self.base())
        if self.device is not None and self.window:
            self.device.begin(H2D)
        return before

    @safely
    def leave_h2d(self, before: int) -> None:
        """The copy was issued (its time on the device is the device clock's)."""
        if self.device is not None and self.cur == H2D:
            self.device.end()
        self.leave(before)

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

    @safely
    def note_unmeasured(self, module: object) -> None:
        """A model of a measured one's class was called: it may be the next to be trained."""
        self.candidate = weakref.ref(module)

    def note_foreign(self, module: object = None) -> None:
        """A model (if it is a measured one) or an optimizer was called on another thread."""
        aside = module is not None and id(module) not in self.targets
        if not (aside or self.in_backward or self.stage in DIFFERENTIATING):  # those are autograd's own
            self.resting = GENERAL

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
        evaluates = not grad and not training and not self.framework
        if self.cur == TAIL:
            self.leave_tail(self.base() if grad else self.eval_column())
        if self.pending is not None and evaluates and not self.in_optimizer:
            self.pending.role = EVAL
            self.pending.loader = None
            self.not_training(self.eval_column())
        if self.hand_open and (evaluates or not self.batch_is_fetched()):
            self.end_hand_step()
        before = self.cur
        if evaluates:
            self.cur = self.eval_column()
            self.rare = True
            return before
        if not grad and not self.window:
            self.cur = BETWEEN  # a rollout, say: no training, and no evaluation either
            return before
        if not acc[FETCHES] and not self.framework:
            self.take_batch()
        if not self.window and not self.marked:
            self.open_window(now)
            before = RESIDUAL
        if self.on_first_forward is not None:
            self.on_first_forward()
            self.on_first_forward = None
        self.cur = FORWARD if self.window else BETWEEN
        if self.device is not None and self.window:
            self.device.begin(FORWARD)
        return before

    def leave_forward(self, before: int) -> None:
        """The outermost model call returned."""
        now = self.clock()
        acc = self.acc
        cur = self.cur
        acc[cur] += now - self.mark
        self.mark = now
        self.no_forward = False
        if self.device is not None and cur == FORWARD:
            self.device.end()
        self.cur = before if cur in (FORWARD, BETWEEN) else TAIL

    def adopt_or_count(self, ident: int) -> bool:
        """A backward runs on another thread. The first one of the process means that thread trains.

        Returns:
            Whether the thread is the measured one now. What it did before is not known.
        """
        if not self.adoptable or self.step or self.marked:
            self.foreign += self.ident != -1
            self.resting = GENERAL
            return False
        self.ident = ident
        self.advance()
        self.reset()
        self.pending = self.snapshot = None
        self.window = self.in_fetch = self.no_forward = False
        self.cur = BETWEEN
        return True

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
        self.adoptable = False
        if self.cur == TAIL:
            self.leave_tail(self.base())
        if self.pending is not None:
            self.trains(self.pending)
        if self.hand_open and not self.batch_is_fetched() and not acc[FORWARD]:
            self.end_hand_step()
        if not self.window and not self.marked:
            # No batch and no model call was seen: the loop's own code made the loss.
            self.take_batch()
            self.open_window(now)
        before = self.cur
        if self.window:
            self.cur = BACKWARD
            if self.device is not None:
                self.device.begin(BACKWARD)
        return before

    def leave_backward(self, before: int, *, was_forward: bool, wrt: object = None) -> None:
        """The outermost backward returned.

        Args:
            before: What `enter_backward` returned.
            was_forward: Whether it ran inside a forward.
            wrt: What `autograd.grad` differentiated with respect to.
        """
        now = self.clock()
        acc = self.acc
        acc[self.cur] += now - self.mark
        self.mark = now
        self.in_backward = False
        self.no_forward = was_forward
        self.cur = before
        if not self.window:
            return
        if self.device is not None:
            self.device.end()
        self.backwards += 1
        self.use_batch()
        if not acc[FORWARD] and self.on_missing_forward is not None:
            self.on_missing_forward(wrt)
            self.book_own()
            now = self.mark
        if self.in_optimizer:
            self.in_closure = True
            return
        if self.marked:
            return
        if not self.optimizers or self.backwards > HAND_AFTER_BACKWARDS:
            acc[FLAGS] |= NO_OPTIMIZER_BIT
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
            self.leave_tail(self.base())
        if not self.window and not self.marked:
            self.open_window(now)
        before = self.cur
        if self.device is not None:
            self.device.begin(OPTIMIZER)
        self.in_optimizer = True
        self.took_effect = self.in_closure = False
        self.cur = OPTIMIZER
        return before

    def leave_optimizer(self, before: int, optimizer: object, *, scaled: bool = False) -> None:
        """The outermost ``optimizer.step`` returned; ``took_effect`` says whether it updated."""
        if self.framework:
            self._count_framework_update()
            return
        now = self.clock()
        acc = self.acc
        acc[OPTIMIZER] += now - self.mark
        self.mark = now
        self.in_optimizer = False
        if self.device is not None:
            self.device.end()
        self.cur = before
        effect = self.took_effect
        self.follow(id(optimizer))
        if effect:
            acc[UPDATES] += 1
        elif not (scaled or self.in_closure):
            return
        else:
            acc[FLAGS] |= SKIPPED_BIT
        self.backwards = 0
        if not self.marked:
            self.close_by_update(now, id(optimizer))

    def follow(self, optimizer: int) -> None:
        """Know an optimizer, and whether it stepped, without looking it up: it may step again."""
        watch = self.watches.get(optimizer)
        self.plain_optimizer = gone if watch is None else watch.optimizer
        self.plain_parameter = self.versioned.get(optimizer, gone)

    def count_update(self, optimizer: Any, changed: bool) -> None:
        """A framework's optimizer has stepped; ``changed``: the parameter that shows it did."""
        try:
            if self.stage >= IDLE:
                self.settle()
            if changed and self.window and not self.by_hand:
                self.in_optimizer = False
                self.took_effect = True
                self.acc[UPDATES] += 1
            elif self.ident != -1:
                self._count_unclear(optimizer, changed)
        except Exception as error:  # noqa: BLE001 - ours must not become the training's
            self.fail("optimizer", error)

    def _count_unclear(self, optimizer: Any, changed: bool) -> None:
        """`count_update` where there is more to it."""
        self.took_effect = changed or self._changed_others(optimizer)
        self._count_framework_update()

    def _changed_others(self, optimizer: Any) -> bool:
        """Whether a step that left the followed parameter alone took effect all the same.

        The parameter may have been frozen meanwhile: then it tells nothing, but if others have gradients,
        they were updated.
        """
        self.versioned.pop(id(optimizer), None)
        watch = self.watches.get(id(optimizer))
        if watch is None or watch.optimizer() is not optimizer:
            return True
        if not watch.is_stale():
            return False
        watch.look()
        return not watch.bare

    def _count_framework_update(self) -> None:
        """Count an update of a framework's step; the framework says when the phase ends."""
        self.in_optimizer = False
        if not self.window:
            return
        if self.took_effect:
            self.acc[UPDATES] += 1
        else:
            self.acc[FLAGS] |= SKIPPED_BIT
        if self.by_hand and self.cur == OPTIMIZER:
            self.leave_framework_optimizer()

    def leave_framework_optimizer(self) -> None:
        """The optimizer's phase ends before the batch does."""
        self.advance()
        if self.device is not None:
            self.device.end()
        self.cur = RESIDUAL

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

    @safely
    def leave_odd_optimizer(self, optimizer: Any, changed: bool) -> None:
        """The step of a plain optimizer turned out not to be plain after all."""
        if self.stage >= IDLE:
            self.settle()
        self.took_effect = self.took_effect or changed or self._changed_others(optimizer)
        self.leave_optimizer(RESIDUAL, optimizer)

    def _same_step(self, optimizer: int) -> bool:
        """Whether an update without a new batch belongs to the step that was written last."""
        if self.fetched or not self.step:
            return False
        last = self.newest()
        if last[FLAGS] & MARKED_BIT:
            return False
        if optimizer not in self.step_optimizers:
            return True
        if self.took_ahead or not last[FETCHES]:
            return False
        return self.repeats > 0 or self.single < SPLIT_AFTER_STEPS

    def close_by_update(self, now: int, optimizer: int) -> None:
        """An update took effect: it ends a step, or belongs to the one that was written last."""
        if self._same_step(optimizer):
            if optimizer in self.step_optimizers:
                self.repeats += 1
            else:
                self.step_optimizers.append(optimizer)
            self.merge_into_last(now)
        else:
            if len(self.step_optimizers) == 1:
                self.single += 1
            self.step_optimizers[:] = (optimizer,)
            self.window = False
            self.cur = BETWEEN
            self.close(now)
        self.window = False
        self.cur = BETWEEN

    def _close_by_hand(self, now: int) -> None:
        """A backward of a loop without optimizers: write now, add the rest when the next begins."""
        if self.hand_open:
            self.merge_into_last(now)
        else:
            self.close(now)
        self.hand_open = True
        self.cur = RESIDUAL
