"""One run of MONAI's ``SupervisedTrainer``: its own iteration, step by step.

The trainer says little by events, but it reads what it is about to call from itself, in a fixed
order: ``engine.prepare_batch(...)``, ``engine.network.train()``, ``engine.optimizer.zero_grad()``,
``engine.inferer(...)``, and after the backward ``engine.optimizer.step()``. `_monai_attach` makes
these reads known (each gives the real object, there is no proxy), and here a reading moves the run
to its next stage. A reading that is not due, say by a handler, means nothing.
"""

from __future__ import annotations

from typing import Any

from traceml_ai.integrations._ignite_run import EngineRun
from traceml_ai.probe.columns import UPDATES
from traceml_ai.probe.session import Session

# What MONAI registers itself, by the words of its documentation.
_OWN_HANDLERS = {"_decollate_data": "decollation", "_run_postprocessing": "postprocessing"}

# Stages of an iteration: which reading comes next, or what goes on.
_OUT, _READY, _PREPARING, _TRAINING, _ZEROING, _FORWARD, _BACKWARD, _UPDATING = range(8)


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
        self.stage = _OUT
        self.told = {
            "prepare_batch": self._prepares,
            "network": self._trains,
            "optimizer": self._uses_optimizer,
            "inferer": self._infers,
        }
        self._due = False  # an update was attempted in this iteration
        self._scaled = False  # through a gradient scaler, which may skip it
        self._stepped = False
        own = iteration_events
        self.before |= {
            id(events.ITERATION_STARTED): self._is_out,
            id(own.FORWARD_COMPLETED): self._forwarded,
            id(own.LOSS_COMPLETED): self._has_loss,
            id(own.BACKWARD_COMPLETED): self._backwarded,
            id(own.MODEL_COMPLETED): self._computed,
        }
        self.after |= {
            id(events.GET_BATCH_STARTED): self._fetches_of_group,
            id(events.EPOCH_STARTED): self.watch_handlers,
            id(events.ITERATION_STARTED): self._is_ready,
            id(own.FORWARD_COMPLETED): self._computes_loss,
            id(own.LOSS_COMPLETED): self._backwards,
            id(own.BACKWARD_COMPLETED): self._updates,
            id(own.MODEL_COMPLETED): self._ends,
        }

    # -- the run ------------------------------------------------------------------------------

    def begins(self) -> None:
        """`Engine.run` was called."""
        super().begins()
        self.stage = _OUT
        optimizer = vars(self.engine).get("optimizer")
        if hasattr(optimizer, "register_step_pre_hook"):
            self.hooks = [
                optimizer.register_step_pre_hook(self.step_begins),
                optimizer.register_step_post_hook(self.step_ends),
            ]

    def fails(self) -> None:
        """An exception leaves the iteration, or the loader."""
        super().fails()
        self.stage = _OUT
        self._due = self._scaled = self._stepped = False

    def ends(self) -> None:
        """`Engine.run` returns."""
        self.stage = _OUT
        super().ends()

    def part_of(self, handler: Any) -> str:
        """What a handler inside the step is called."""
        return _OWN_HANDLERS.get(self.name_of(handler)) or super().part_of(handler)

    # -- batches ------------------------------------------------------------------------------

    def _fetches_of_group(self) -> None:
        """A batch is fetched; MONAI may be about to zero what was accumulated before it."""
        if self.window.batches and self.window.group and self._begins_group():
            self.window.drop()
        self._fetches()

    def _begins_group(self) -> bool:
        """Whether the coming iteration zeroes the gradients, as MONAI's ``_iteration`` has it."""
        state = self.engine.state
        iteration = state.iteration
        if state.epoch_length is not None:
            iteration %= state.epoch_length
        return bool(iteration % self.engine.accumulation_steps == 0)

    def _is_out(self) -> None:
        self.stage = _OUT

    def _is_ready(self) -> None:
        self.stage = _READY

    # -- readings -----------------------------------------------------------------------------

    def _prepares(self) -> None:
        if self.stage != _READY:
            return
        self.stage = _PREPARING
        self._due = self._scaled = self._stepped = False
        self.window.open(self.samples())
        self.opened("prepare_batch")

    def _trains(self) -> None:
        if self.stage == _PREPARING:
            self.stage = _TRAINING
            self.switch("network.train")

    def _uses_optimizer(self) -> None:
        if self.stage == _TRAINING:
            self.stage = _ZEROING
            self._zeroes()
        elif self.stage == _UPDATING and not self._due:
            self._attempts()

    def _zeroes(self) -> None:
        if self.window.batches:
            # Gradients of an open group go, against what `_begins_group` foresaw.
            samples = self.samples()
            self.window.drop()
            self.window.open(samples)
            self.opened("")
        self.switch("zero_grad")

    def _attempts(self) -> None:
        """An update comes; under a scaler, of which only the optimizer's own step is the phase."""
        self._due = True
        self.switch("gradient scaler" if self._has_scaler() else "")
        if self._has_scaler():
            self._scaled = self.st.in_optimizer = True
            self.st.took_effect = False

    def _has_scaler(self) -> bool:
        engine = self.engine
        return bool(engine.amp) and engine.scaler is not None

    def _infers(self) -> None:
        if self.stage in (_TRAINING, _ZEROING):
            self.stage = _FORWARD
            self.switch("")
            self.window.begin_forward()

    # -- events -------------------------------------------------------------------------------

    def _forwarded(self) -> None:
        if self.st.window:
            self.window.end_forward()

    def _computes_loss(self) -> None:
        if self.st.window:
            self.switch("loss")

    def _has_loss(self) -> None:
        if self.st.window:
            self.switch("")

    def _backwards(self) -> None:
        self.stage = _BACKWARD
        self.window.begin_backward()

    def _backwarded(self) -> None:
        self.window.end_backward()

    def _updates(self) -> None:
        if self.stage == _BACKWARD:
            self.stage = _UPDATING

    def _computed(self) -> None:
        self.stage = _OUT
        if not self.st.window:
            return
        if self._scaled:
            self.st.in_optimizer = False
            if self._stepped and self.st.took_effect:
                self.st.acc[UPDATES] += 1
        self.switch("")

    def _ends(self) -> None:
        st = self.st
        if not st.window:
            return
        if self._due:
            self.close(due=True)
        else:
            self.suspend()

    # -- the optimizer's own step -------------------------------------------------------------

    def step_begins(self, optimizer: Any, *_args: Any) -> None:
        """The step begins (a hook of the trainer's optimizer)."""
        if self._due:
            super().step_begins(optimizer)

    def step_ends(self, optimizer: Any, *_args: Any) -> None:
        """The step is over."""
        super().step_ends(optimizer)
        self._stepped = not _is_skipped_inside(optimizer)


def _is_skipped_inside(optimizer: Any) -> bool:
    """Whether a fused optimizer has left out its update, as its scaler found an infinite gradient.

    On the CPU only: elsewhere asking would wait for the device.
    """
    found = vars(optimizer).get("found_inf")
    return found is not None and found.device.type == "cpu" and bool(found)
