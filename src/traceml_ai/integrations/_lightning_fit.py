"""One ``Trainer.fit()``: Lightning's events, told to the step state as windows and phases."""

from __future__ import annotations

import weakref
from typing import Any

from traceml_ai.probe.facts import describe_loader
from traceml_ai.probe.framework import Window
from traceml_ai.probe.session import Session

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
        self._module = weakref.ref(trainer.lightning_module)
        self._automatic: Any = None
        self._global_step = 0
        self._targets: set[int] = set()
        self._described = False

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
        self._described = True
        known = self.session.facts.values["loaders"]
        loaders = self.trainer.fit_loop._combined_loader.flattened  # noqa: SLF001
        described = [describe_loader(getattr(loader, "_inner", loader)) for loader in loaders]
        known[:] = [*described, *(other for other in known if other not in described)][:8]

    # -- the loop -----------------------------------------------------------------------------

    def runs(self) -> bool:
        """Whether the trainer's loop runs for training (tuners take our callback out for theirs)."""
        return any(callback is self.callback for callback in self.trainer.callbacks)

    def begins(self) -> None:
        """The loop begins."""
        self._automatic = self.trainer.fit_loop.epoch_loop.automatic_optimization
        self._global_step = self.trainer.global_step
        self.window.begin()
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
                self.session.measure_model(one, named=one is module)

    def is_automatic(self) -> bool:
        """Whether Lightning itself updates after each group of batches."""
        return bool(self.trainer.lightning_module.automatic_optimization)

    # -- batches ------------------------------------------------------------------------------

    def is_training_fetcher(self, fetcher: Any) -> bool:
        """Whether a data fetcher gives this fit's training batches."""
        loader = fetcher._combined_loader  # noqa: SLF001
        return loader is not None and loader is self.trainer.fit_loop._combined_loader  # noqa: SLF001

    def opens(self) -> bool:
        """Whether a batch that is there now will be trained on."""
        # Weight averaging runs an epoch without backward, to renew batch statistics.
        return self.window.is_training() and not self._automatic._skip_backward  # noqa: SLF001

    def epoch_starts(self) -> None:
        """A new epoch: gradients of an unfinished group do not outlive the last one."""
        if not self.window.is_training():
            return
        if self.window.group:
            self.window.drop()
        self._measure_modules()

    def batch_starts(self) -> None:
        """A batch is there; its window may be open already."""
        if self.opens():
            self.window.open()
        if not self._described:
            self._describe_loaders()

    def batch_ends(self) -> None:
        """The batch is over."""
        window = self.window
        if not window.is_open():
            return
        trainer = self.trainer
        step = trainer.global_step
        automatic = self.is_automatic()
        if automatic and step == self._global_step:
            window.suspend()
            return
        if automatic:
            window.skip_update()
        if not window.saw_forward():
            self.session.warn("forward", _NO_FORWARD, say=True)
        self._global_step = step
        window.close(step)
