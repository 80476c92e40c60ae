"""Which trainer is measured, by which callback, and what is said where none can be."""

from __future__ import annotations

import sys
from _thread import get_ident
from types import ModuleType
from typing import Any

from traceml_ai.integrations._lightning_fit import Fit
from traceml_ai.probe import session as sessions
from traceml_ai.probe.framework import Window
from traceml_ai.probe.replaced import Patches
from traceml_ai.probe.safety import call_safely
from traceml_ai.probe.session import Session, Which

_STRATEGIES = ("SingleDeviceStrategy", "DDPStrategy")
# What a strategy of the user's own must have left alone to be measured like its parent.
_MEASURED = ("batch_to_device", "training_step", "backward", "optimizer_step")


class Adapter:
    """One namespace of Lightning in this process.

    Args:
        session: The measurement of this process.
        namespace: ``"lightning.pytorch"`` or ``"pytorch_lightning"``.
    """

    def __init__(self, session: Session, namespace: str) -> None:
        self.session = session
        self.namespace = namespace
        self.patches = Patches()
        self.fit: Fit | None = None

    @property
    def version(self) -> str | None:
        """Lightning's version."""
        module = sys.modules.get(self.namespace.partition(".")[0])
        return getattr(module, "__version__", None)

    def module(self, name: str) -> ModuleType:
        """A module of the namespace that is imported already."""
        return sys.modules[f"{self.namespace}.{name}"]

    def fit_of(self, trainer: Any) -> Fit | None:
        """What is measured of a trainer, if it is the one that is."""
        fit = self.fit
        return fit if fit is not None and fit.trainer is trainer else None


_adapters: dict[str, Adapter] = {}


def adapter_of(session: Session, namespace: str) -> Adapter | None:
    """A new adapter; None when the namespace has one already."""
    if namespace in _adapters:
        return None
    adapter = _adapters[namespace] = Adapter(session, namespace)
    return adapter


def _callback_class() -> type:
    from traceml_ai.integrations.lightning import TraceMLCallback

    return TraceMLCallback


def _adapter_for(trainer: Any) -> Adapter | None:
    names = {c.__module__ for c in type(trainer).__mro__}
    for namespace, adapter in _adapters.items():
        if f"{namespace}.trainer.trainer" in names:
            return adapter
    return None


def attach(trainer: Any) -> None:
    """Measure what ``trainer`` is about to fit, or say once why not."""
    adapter = _adapter_for(trainer)
    if adapter is not None and adapter.session.st.ident != -1:
        call_safely(adapter.session.st, "lightning", _attach, adapter, trainer)


def _attach(adapter: Adapter, trainer: Any) -> None:
    if adapter.fit_of(trainer) is not None:
        return
    session = adapter.session
    manual = [cb for cb in trainer.callbacks if isinstance(cb, _callback_class())]
    reason = _refusal(session, trainer, by_hand=bool(manual))
    if reason is not None:
        session.warn("lightning", reason, say=True)
        return
    release_other(adapter)
    if manual:
        adapter.fit = Fit(session, trainer, manual[0], added=False)
    else:
        callback = _callback_class()()
        # First, so that what the others do after a step is not part of it. A new list: this may
        # be called while Lightning goes through the old one.
        trainer.callbacks = [callback, *trainer.callbacks]
        adapter.fit = Fit(session, trainer, callback, added=True)
    adapter.fit.callback.report_to(adapter.fit)
    adapter.fit.describe(adapter.version)


def release_other(adapter: Adapter) -> None:
    """Let go of a trainer that never said it was done."""
    if adapter.fit is not None:
        _let_go(adapter, adapter.fit.trainer)


def release(callback: Any, trainer: Any) -> None:
    """The fit is over: nothing of ours stays in the trainer."""
    for adapter in _adapters.values():
        fit = adapter.fit
        if fit is not None and fit.callback is callback:
            call_safely(adapter.session.st, "lightning", _let_go, adapter, trainer)


def _let_go(adapter: Adapter, trainer: Any) -> None:
    fit, adapter.fit = adapter.fit, None
    if fit is None:
        return
    fit.callback.report_to(None)
    if fit.added and trainer is not None:
        trainer.callbacks = [cb for cb in trainer.callbacks if cb is not fit.callback]
    fit.ends()


def _refusal(session: Session, trainer: Any, *, by_hand: bool) -> str | None:
    """Why a trainer can't be measured; None when it can."""
    if session.which != Which():
        return (
            "init() gave this process a mode of its own, which is left as it is: Lightning's trainer is "
            "not attached (call init() without a mode, or leave it out)"
        )
    if sessions.current is not session:
        return None
    strategy = trainer.strategy
    if by_hand or _is_ordinary(type(strategy)):
        return None
    return (
        f"Lightning's {type(strategy).__name__} is not measured (single device and ordinary DDP are); "
        "the training goes on unmeasured"
    )


def _is_ordinary(strategy: type) -> bool:
    """Whether a strategy runs its steps as Lightning's single device and DDP strategies do."""
    for kind in strategy.__mro__:
        if kind.__name__ in _STRATEGIES and ".strategies." in kind.__module__:
            return True
        if ".strategies." in kind.__module__ or any(name in vars(kind) for name in _MEASURED):
            return False
    return False


def is_measured_thread(adapter: Adapter) -> bool:
    """Whether this is the thread that is measured."""
    return adapter.session.st.ident == get_ident()


def window_of(adapter: Adapter) -> Window | None:
    """The window of the fit that is measured, or one of no fit; None off the measured thread."""
    if not is_measured_thread(adapter):
        return None
    return Window(adapter.session.st) if adapter.fit is None else adapter.fit.window
