"""One ``Trainer.fit()``: Lightning's events, told to the step state as windows and phases."""

from __future__ import annotations

import weakref
from typing import Any

from traceml_ai.probe.columns import OWNED, T_HANDLERS, T_UPDATED
from traceml_ai.probe.facts import describe_loader
from traceml_ai.probe.framework import Window
from traceml_ai.probe.session import Session
from traceml_ai.schema.step import TOLD

GLOBAL_STEP = TOLD["global_step"]

_NO_FORWARD = (
    "in training_step() neither the LightningModule nor one of its direct children was called in some steps "
    "(only modules further down, functions, or .forward() itself): their forward is not available"
)


class Fit:
    """What is measured of one trainer.

    Args:
        session: The measurement of this process.
        trainer: Lightning's trainer.
        callback: The callback that reports; it is in ``trainer.callbacks``.
        added: Whether we put it there.
    """

    def __init__(self, session: Session, trainer: Any, callback: Any, *, added: bool) -> None:
        self.session = session
        self.window = Window(session.st)
        self._trainer = weakref.ref(trainer)
        self.callback = callback
        self.added = added
        self.strategy = trainer.strategy
        self.precision: Any = trainer.precision_plugin  # None: the callback is told instead
        self._module = weakref.ref(trainer.lightning_module)
        self.loader: Any = None  # the trainer's combined training loader
        self.redirected = False  # the strategy wraps the module, and calls it through the wrapper
        self.compiled = False  # training_step itself is compiled
        self.ordinary = True  # neither
        self.automatic: Any = None  # Lightning's loop of automatic optimization
        self.by_hand = False  # its user calls the optimizers
        self._samples = session.st.batch_samples or _unknown
        self._global_step = 0
        self._targets: set[int] = set()
        self.described = False

    @property
    def trainer(self) -> Any:
        """The trainer; None when it is gone."""
        return self._trainer()

    def describe(self, version: str | None) -> None:
        """Record what the trainer says about itself."""
        trainer, values = self.trainer, self.session.facts.values
        values["framework"] = "lightning"
        values["framework_version"] = version
        values["precision"] = str(trainer.precision)
        values["accumulation"] = int(trainer.accumulate_grad_batches)
        values["strategy"] = type(trainer.strategy).__name__

    def _describe_loaders(self) -> None:
        """Record the training loaders, first of all loaders."""
        self.described = True
        known = self.session.facts.values["loaders"]
        loaders = self.trainer.fit_loop._combined_loader.flattened  # noqa: SLF001
        described = [describe_loader(getattr(loader, "_inner", loader)) for loader in loaders]
        known[:] = [*described, *(other for other in known if other not in described)][:8]

    # -- the loop -----------------------------------------------------------------------------

    def may_begin(self) -> bool:
        """Whether the trainer's loop runs for training (tuners take our callback out for theirs)."""
        reports = any(callback is self.callback for callback in self.trainer.callbacks)
        return reports and not self.window.is_training()

    def begins(self) -> None:
        """The loop begins."""
        trainer = self.trainer
        module = trainer.lightning_module
        self.automatic = trainer.fit_loop.epoch_loop.automatic_optimization
        self.opens()  # what is read at every batch is missing here, if anywhere
        self.by_hand = not module.automatic_optimization
        self._global_step = trainer.global_step
        self.redirected = self.strategy.model is not module
        self.compiled = getattr(module, "_compiler_ctx", None) is not None
        self.ordinary = not (self.redirected or self.compiled)
        self.window.begin(self.by_hand)
        self._measure_modules()

    def fails(self) -> None:
        """An exception leaves the loop."""
        self.window.abort()

    def ends(self) -> None:
        """The loop is over; also called when it never ran."""
        self.window.end()
        values = self.session.facts.values
        values["dropped_groups"] += self.window.dropped
        self.window.dropped = 0
        for key in self._targets:
            self.session.st.targets.pop(key, None)
        self._targets.clear()

    def _measure_modules(self) -> None:
        """Forward is the calls of the module and of its direct children.

        A ``ModuleList`` or ``ModuleDict`` is never called itself: what is in it counts as direct.
        """
        module = self._module()
        if module is None or not self.session.which.forward:
            return
        nn = self.session.torch.nn
        held = [module, *module.children()]
        for child in held:
            if type(child) in (nn.ModuleList, nn.ModuleDict):
                held.extend(child.children())
        for one in held:
            if id(one) not in self.session.st.targets:
                self._targets.add(id(one))
                self.session.models.measure(one, named=one is module)

    # -- batches ------------------------------------------------------------------------------

    def is_training_fetcher(self, fetcher: Any) -> bool:
        """Whether a data fetcher gives this fit's training batches."""
        self.loader = self.trainer.fit_loop._combined_loader  # noqa: SLF001
        # What is asked of a fetcher at every batch is missing here, if anywhere.
        known = fetcher._combined_loader is self.loader and fetcher.fetched >= 0  # noqa: SLF001
        return self.loader is not None and known

    def opens(self) -> bool:
        """Whether a batch that is there now will be trained on."""
        # Weight averaging runs an epoch without backward, to renew batch statistics.
        return not self.automatic._skip_backward  # noqa: SLF001

    def samples_in(self, batch: Any) -> int:
        """Number of samples in a batch; 0 where it can't be told."""
        try:
            return self._samples(batch) or 0
        except Exception:  # noqa: BLE001 - a batch may be anything
            return 0

    def epoch_starts(self) -> None:
        """A new epoch: gradients of an unfinished group do not outlive the last one."""
        if not self.window.is_training():
            return
        if self.window.group:
            self.window.drop()
        self._measure_modules()
        self.window.begin_handlers()

    def epoch_ends(self) -> None:
        """The callbacks after an epoch begin."""
        if self.window.is_training():
            self.window.begin_handlers()

    def batch_starts(self) -> None:
        """A batch is trained on; one that did not go through ``batch_to_device`` opens its window here."""
        if not self.window.is_open() and self.window.st.framework == OWNED and self.opens():
            self.window.open(0)
        if not self.described:
            self._describe_loaders()

    def batch_ends(self, *_of: Any) -> None:
        """The batch is over, and with it the step if an update was due."""
        window = self.window
        try:
            st = window.st
            if st.stage == T_UPDATED:
                step = self.automatic.optim_progress.optimizer_steps
                if step != self._global_step:
                    self._global_step = step
                    st.told[GLOBAL_STEP] = step + 1  # stored plus one
                    st.close_noted(st.told, st.clock(), T_HANDLERS)
                    return
            if st.stage == T_HANDLERS:
                return  # it was known before the callbacks
            if not window.is_open() or st.framework != OWNED:
                return
            if self.by_hand:
                step = self.trainer.global_step
            else:
                step = self.automatic.optim_progress.optimizer_steps
                if step == self._global_step:
                    window.suspend()
                    return
                self._global_step = step
            if not window.close(step, due=not self.by_hand):
                self.session.warn("forward", _NO_FORWARD, say=True)
            elif self.ordinary:
                window.rest()
        except Exception as error:  # noqa: BLE001 - ours must not become the training's
            window.fail("lightning", error)


def _unknown(_batch: Any) -> None:
    """The number of samples can't be told."""
