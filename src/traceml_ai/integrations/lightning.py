"""PyTorch Lightning, as ``lightning.pytorch`` and as ``pytorch_lightning``.

Under ``traceml run`` a standard ``Trainer.fit()`` is measured without any of this. The two calls are
for scripts that are started in another way, or that want to say it::

    from traceml_ai.integrations import lightning as traceml_lightning

    traceml_lightning.init()
    trainer = Trainer(callbacks=[traceml_lightning.TraceMLCallback()])

Both kinds of use are one: a callback that is there already is used, and no second one is added.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from traceml_ai import api
from traceml_ai.errors import TraceMLError
from traceml_ai.integrations import _lightning_attach as attaching
from traceml_ai.integrations import _lightning_calls as calls
from traceml_ai.integrations import _lightning_precision as precision
from traceml_ai.integrations._lightning_fit import Fit
from traceml_ai.probe import session as sessions
from traceml_ai.probe.safety import call_safely

__all__ = ["TraceMLCallback", "adapt", "init"]

_NOT_ASKED_FOR = ("on_train_batch_start", "on_before_zero_grad")
_END = "on_train_batch_end"
_TOLD_OTHERWISE = ("on_before_backward", "on_after_backward", "on_before_optimizer_step")
_NAMESPACES = ("lightning.pytorch", "pytorch_lightning")


def init() -> None:
    """Measure Lightning in this process. Optional under ``traceml run``; repeating it does nothing.

    Raises:
        UsageError: This process was initialised before in a way that does not go with it.
    """
    api.configure("auto")
    for namespace in _NAMESPACES:
        if f"{namespace}.trainer.trainer" in sys.modules:
            adapt(f"{namespace}.trainer.trainer")


def adapt(trainer_module: str) -> None:
    """Have the trainers of a namespace tell what they do; called when it was imported.

    Args:
        trainer_module: ``"lightning.pytorch.trainer.trainer"`` or ``"pytorch_lightning.trainer.trainer"``.
    """
    session = sessions.current
    if session is None:
        return
    namespace = trainer_module.removesuffix(".trainer.trainer")
    adapter = attaching.adapter_of(session, namespace)
    if adapter is None:
        return
    try:
        calls.install(adapter)
    except AttributeError as error:
        adapter.patches.restore()
        session.warn("lightning", f"this version of {namespace} is not known, and not measured ({error})")


class TraceMLCallback:
    """Tells TraceML what a Lightning trainer does; without a collector it does nothing.

    Made for whichever namespaces are imported: an instance is a ``Callback`` of each of them.

    Example:
        >>> from traceml_ai.integrations import lightning as traceml_lightning
        >>> traceml_lightning.TraceMLCallback.__name__
        'TraceMLCallback'
    """

    fit: Fit | None = None  # what it reports to; set while a trainer that is measured has it

    def __new__(cls) -> TraceMLCallback:
        """Make an instance of the class that is a ``Callback`` as well."""
        made: TraceMLCallback = object.__new__(_concrete(cls))
        return made

    def report_to(self, fit: Fit | None) -> None:
        """Report to ``fit`` from here on; None: to nobody.

        What comes once or more a batch goes there directly, and what is not needed is None, which
        Lightning does not call: that takes it longer than we do.
        """
        self.fit = fit
        each_batch: dict[str, Any] = dict.fromkeys((*_NOT_ASKED_FOR, *_TOLD_OTHERWISE))
        if fit is not None:
            window = fit.window
            each_batch[_END] = fit.batch_ends
            if precision.tells(fit.precision):
                window.listen = self._listen
            else:
                fit.precision = None
                told = (window.begin_backward, window.end_backward, window.begin_optimizer)
                each_batch.update(zip(_TOLD_OTHERWISE, told, strict=True))
            self.__dict__.update({name: self._before_theirs(name, ours) for name, ours in each_batch.items()})
            return
        for name in (*each_batch, _END):
            self.__dict__.pop(name, None)

    def _listen(self, stage: int | None) -> None:
        """Whether we need to be told that a batch is over: plain ones, noted now, are known to be."""
        if self.fit is not None:
            ours = None if stage is None else self.fit.batch_ends
            self.__dict__[_END] = self._before_theirs(_END, ours)

    def _before_theirs(self, name: str, ours: Callable[..., None] | None) -> Callable[..., None] | None:
        """A hook of ours, and after it the one that a class derived from ours has of that name."""
        owner = next((c for c in type(self).__mro__ if name in vars(c)), object)
        if not issubclass(owner, TraceMLCallback):
            return ours
        theirs: Callable[..., None] = vars(owner)[name].__get__(self)
        if ours is None:
            return theirs

        def both(*args: Any, **kwargs: Any) -> None:
            ours(*args, **kwargs)
            theirs(*args, **kwargs)

        return both

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy in another process is a callback of that process; it has no state to take along.
        return TraceMLCallback, ()

    # -- what Lightning calls -----------------------------------------------------------------

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """A fit begins: attach to it, where that did not happen of itself."""
        if stage == "fit":
            attaching.attach(trainer)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """The module may have got new children."""
        fit = self.fit
        if fit is not None:
            call_safely(fit.window.st, "lightning", fit.epoch_starts)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """The callbacks after an epoch begin."""
        fit = self.fit
        if fit is not None:
            call_safely(fit.window.st, "lightning", fit.epoch_ends)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """The trainer gives up."""
        attaching.release(self, trainer)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """The trainer is done."""
        attaching.release(self, trainer)


_classes: dict[tuple[type, ...], type] = {}


def _concrete(cls: type) -> type:
    """The subclass of ``cls`` that is a ``Callback`` of every namespace that is imported."""
    if not any(namespace in sys.modules for namespace in _NAMESPACES):
        _import_one()
    callbacks = [f"{n}.callbacks.callback" for n in _NAMESPACES]
    bases = (cls, *(sys.modules[name].Callback for name in callbacks if name in sys.modules))
    if bases not in _classes:
        _classes[bases] = type(cls.__name__, bases, {"__module__": cls.__module__, "__doc__": cls.__doc__})
    return _classes[bases]


def _import_one() -> None:
    for namespace in _NAMESPACES:
        try:
            import_module(namespace)
        except ImportError:
            continue
        return
    raise TraceMLError("TraceMLCallback needs PyTorch Lightning: pip install 'traceml-ai[lightning]'")
