"""One run of MONAI's ``SupervisedTrainer``: its own iteration, step by step.

The trainer says little by events, but it reads what it is about to call from itself, in a fixed
order: ``engine.prepare_batch(...)``, ``engine.network.train()``, ``engine.optimizer.zero_grad()``,
``engine.inferer(...)``, and after the backward ``engine.optimizer.step()``. `_monai_readings` makes
these reads known (each gives the real object, there is no proxy), and here a reading moves the run
to its next stage. A reading that is not due, say by a handler, means nothing.

Each boundary is written out, as every call costs on the step path.
"""

from __future__ import annotations

from typing import Any

from traceml_ai.integrations._ignite_run import EngineRun
from traceml_ai.integrations._monai_readings import Readings
from traceml_ai.probe.columns import (
    BACKWARD,
    BETWEEN,
    BOUNDARIES,
    FETCHES,
    FIRST_BIT,
    FLAGS,
    FORWARD,
    MICROBATCHES,
    OPTIMIZER,
    RESIDUAL,
    UPDATES,
)
from traceml_ai.probe.session import Session

# What MONAI registers itself, by the words of its documentation.
_OWN_HANDLERS = {"_decollate_data": "decollation", "_run_postprocessing": "postprocessing"}

# Stages of an iteration: which reading comes next, or what goes on.
OUT, READY, PREPARING, TRAINING, ZEROING, FORWARD_STAGE, BACKWARD_STAGE, UPDATING = range(8)
# Parts of the residual, by position in `SupervisedRun._spent`.
PREPARE, TRAIN, ZERO, LOSS, SCALER = range(5)
_PARTS = ("prepare_batch", "network.train", "zero_grad", "loss", "gradient scaler")
# Parts are brought to the facts every so many steps; a power of two.
TELL_EVERY = 64


class SupervisedRun(EngineRun):
    """What is measured of one ``SupervisedTrainer``.

    Args:
        session: The measurement of this process.
        engine: The trainer.
        events: ``ignite.engine.Events``.
        iteration_events: MONAI's ``IterationEvents``.
    """

    def __init__(self, session: Session, engine: Any, events: Any, iteration_events: Any) -> None:
        super().__init__(session, engine, events, "monai")
        self.reads = {
            "prepare_batch": self._prepares,
            "network": self._trains,
            "optimizer": self._uses_optimizer,
            "inferer": self._infers,
        }
        self.readings = Readings(self)
        self._part_names: dict[int, str] = {}  # of handlers that `_names` holds, by id
        self._spent = [0] * len(_PARTS)
        self._due = False  # an update was attempted in this iteration
        self._scaled = False  # through a gradient scaler, which may skip it
        self._stepped = False
        own = iteration_events
        self.closing = id(own.MODEL_COMPLETED)
        self.told |= {
            id(events.EPOCH_STARTED): self.watch_handlers,
            id(own.FORWARD_COMPLETED): self._forwarded,
            id(own.LOSS_COMPLETED): self._has_loss,
            id(own.BACKWARD_COMPLETED): self._backwarded,
            id(own.MODEL_COMPLETED): self._computed,
        }
        if getattr(engine, "accumulation_steps", 1) > 1:
            self.told[id(events.GET_BATCH_STARTED)] = self._fetches_of_group

    # -- the run ------------------------------------------------------------------------------

    def begins(self) -> None:
        """`Engine.run` was called."""
        super().begins()
        self.st.by_hand = False
        optimizer: Any = getattr(self.engine, "optimizer", None)
        if self._has_scaler() and hasattr(optimizer, "register_step_pre_hook"):
            self.hooks = [
                optimizer.register_step_pre_hook(self.step_begins),
                optimizer.register_step_post_hook(self.step_ends),
            ]
        self.readings.begin()

    def fails(self) -> None:
        """An exception leaves the iteration, or the loader."""
        super().fails()
        self.stage = OUT

    def ends(self) -> None:
        """`Engine.run` returns."""
        self.readings.end()
        self.stage = OUT
        self._tell_parts()
        self._part_names.clear()
        super().ends()

    def part_of(self, handler: Any) -> str:
        """What a handler inside the step is called."""
        part = _OWN_HANDLERS.get(self.name_of(handler)) or super().part_of(handler)
        self._part_names[id(handler)] = part
        return part

    def _tell_parts(self) -> None:
        self.session.facts.values["residual_parts_steps"] = self.steps
        for position, name in enumerate(_PARTS):
            if self._spent[position]:
                self.add_part(name, self._spent[position])
                self._spent[position] = 0

    # -- batches ------------------------------------------------------------------------------

    def _fetches_of_group(self) -> None:
        """A batch is fetched; MONAI may be about to zero what was accumulated before it."""
        if self.window.batches and self.window.group and self._begins_group():
            self.window.drop()
        self.window.begin_fetch()

    def _begins_group(self) -> bool:
        """Whether the coming iteration zeroes the gradients, as MONAI's ``_iteration`` has it."""
        state = self.engine.state
        iteration = state.iteration
        if state.epoch_length is not None:
            iteration %= state.epoch_length
        return bool(iteration % self.engine.accumulation_steps == 0)

    def fetched(self) -> None:
        """The batch arrived."""
        st = self.st
        acc = st.acc
        now = st.clock()
        acc[st.cur] += now - st.mark
        st.mark = now
        st.in_fetch = False
        acc[FETCHES] += 1
        acc[BOUNDARIES] += 1
        if self.fresh:
            self.fresh = False
            acc[FLAGS] |= FIRST_BIT
        st.cur = BETWEEN
        self.stage = READY

    # -- readings -----------------------------------------------------------------------------

    def _prepares(self) -> None:
        if self.stage == READY:
            self.stage = PREPARING
            self._due = self._scaled = self._stepped = False
            self.window.open(self.samples())

    def _trains(self) -> None:
        if self.stage == PREPARING:
            self.stage = TRAINING
            self._residual(PREPARE)

    def _uses_optimizer(self) -> None:
        if self.stage == TRAINING:
            self.stage = ZEROING
            self._residual(TRAIN)
            if self.window.batches:
                self._loses_group()
        elif self.stage == UPDATING and not self._due:
            self._attempts()

    def _loses_group(self) -> None:
        """Gradients of an open group are zeroed, against what `_begins_group` foresaw."""
        samples = self.samples()
        self.window.drop()
        self.window.open(samples)

    def _attempts(self) -> None:
        """An update comes; under a scaler only the optimizer's own step is the phase."""
        self._due = True
        st = self.st
        if self.hooks:
            self._scaled = st.in_optimizer = True
            st.took_effect = False
        else:
            self.window.begin_optimizer(getattr(self.engine, "optimizer", None))

    def _has_scaler(self) -> bool:
        engine = self.engine
        return bool(engine.amp) and engine.scaler is not None

    def _infers(self) -> None:
        if self.stage not in (TRAINING, ZEROING):
            return
        self._residual(ZERO if self.stage == ZEROING else TRAIN)
        self.stage = FORWARD_STAGE
        st = self.st
        if st.on_first_forward is not None:
            st.on_first_forward()
            st.on_first_forward = None
        st.cur = FORWARD
        if st.device is not None:
            st.device.begin(FORWARD)

    def _residual(self, part: int) -> None:
        """The residual up to now was spent on a part."""
        st = self.st
        now = st.clock()
        spent = now - st.mark
        st.acc[st.cur] += spent
        if st.cur == RESIDUAL:
            self._spent[part] += spent
        st.mark = now

    # -- events -------------------------------------------------------------------------------

    def _forwarded(self) -> None:
        st = self.st
        if not st.window:
            return
        now = st.clock()
        acc = st.acc
        acc[st.cur] += now - st.mark
        acc[BOUNDARIES] += 5
        st.mark = now
        st.cur = RESIDUAL
        if st.device is not None:
            st.device.end()

    def _has_loss(self) -> None:
        st = self.st
        if not st.window:
            return
        self._residual(LOSS)
        self.stage = BACKWARD_STAGE
        st.in_backward = True
        st.cur = BACKWARD
        if st.device is not None:
            st.device.begin(BACKWARD)

    def _backwarded(self) -> None:
        st = self.st
        if self.stage != BACKWARD_STAGE or not st.window:
            return
        self.stage = UPDATING
        now = st.clock()
        acc = st.acc
        acc[st.cur] += now - st.mark
        st.mark = now
        acc[MICROBATCHES] += 1
        st.fresh_batches = 0
        st.in_backward = False
        st.cur = RESIDUAL
        if st.device is not None:
            st.device.end()

    def _computed(self) -> None:
        self.stage = OUT
        st = self.st
        if not st.window:
            return
        if self._scaled:
            self._residual(SCALER)
            st.in_optimizer = False
            if self._stepped and st.took_effect:
                st.acc[UPDATES] += 1
        elif st.cur == OPTIMIZER:
            now = st.clock()
            st.acc[OPTIMIZER] += now - st.mark
            st.mark = now
            st.cur = RESIDUAL
            if st.device is not None:
                st.device.end()

    def closes(self) -> None:
        """The last event of a step was fired, and its handlers have run."""
        if not self.st.window:
            return
        if not self._due:
            self.suspend()
            return
        self.close(due=True)
        if not self.steps:
            self._spent[:] = [0] * len(_PARTS)  # of the first steps, which are not counted
        if not self.steps % TELL_EVERY or self.steps <= 1:
            self._tell_parts()

    # -- the optimizer's own step -------------------------------------------------------------

    def step_begins(self, optimizer: Any, *_args: Any) -> None:
        """The step begins (a hook of the trainer's optimizer)."""
        if self._due:
            self._residual(SCALER)
            super().step_begins(optimizer)

    def step_ends(self, optimizer: Any, *_args: Any) -> None:
        """The step is over."""
        super().step_ends(optimizer)
        self._stepped = not _is_skipped_inside(optimizer)


def _is_skipped_inside(optimizer: Any) -> bool:
    """Whether a fused optimizer has left out its update, as its scaler found an infinite gradient.

    On the CPU only: elsewhere asking would wait for the device.
    """
    found: Any = getattr(optimizer, "found_inf", None)
    return found is not None and found.device.type == "cpu" and bool(found)
