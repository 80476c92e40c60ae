"""The calls of Lightning that no callback is told of, each timed by a function around it.

Every one passes through unless it belongs to the fit that is measured. Errors of ours turn
measuring off; they never become the training's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from traceml_ai.integrations import _lightning_attach as attaching
from traceml_ai.integrations._lightning_attach import Adapter
from traceml_ai.integrations._lightning_fit import Fit
from traceml_ai.probe.columns import BETWEEN, CHECKPOINT, RESIDUAL, RESIDUAL_CHECKPOINT

Wrapped = Callable[..., Any]
_FIT = "fit"


def install(adapter: Adapter) -> None:
    """Put the timed calls of a namespace in place."""
    connector = adapter.module("trainer.connectors.callback_connector")._CallbackConnector  # noqa: SLF001
    loops = adapter.module("loops.fit_loop")._FitLoop  # noqa: SLF001
    evaluation = adapter.module("loops.evaluation_loop")._EvaluationLoop  # noqa: SLF001
    prediction = adapter.module("loops.prediction_loop")._PredictionLoop  # noqa: SLF001
    fetcher = adapter.module("loops.fetchers")._DataFetcher  # noqa: SLF001
    strategy = adapter.module("strategies.strategy").Strategy
    optimizer = adapter.module("core.optimizer").LightningOptimizer
    trainer = adapter.module("trainer.trainer").Trainer
    for owner, name, make in (
        (connector, "_attach_model_callbacks", _attaching),
        (loops, "run", _fitting),
        (evaluation, "run", _evaluating),
        (prediction, "run", _evaluating),
        (fetcher, "__next__", _fetching),
        (strategy, "batch_to_device", _transferring),
        (strategy, "training_step", _stepping),
        (optimizer, "step", _updating),
        (trainer, "save_checkpoint", _saving),
    ):
        adapter.patches.set(owner, name, make(adapter, getattr(owner, name)))


def _safely(adapter: Adapter, call: Callable[..., Any], *args: Any) -> Any:
    try:
        return call(*args)
    except Exception as error:  # noqa: BLE001 - ours must not become the training's
        adapter.session.st.fail("lightning", error)
        return None


def _attaching(adapter: Adapter, inner: Wrapped) -> Wrapped:
    """Lightning has combined the callbacks of trainer and module: ours may join them."""

    @functools.wraps(inner)
    def _attach_model_callbacks(self: Any) -> Any:
        out = inner(self)
        if self.trainer.state.fn == _FIT:
            _safely(adapter, attaching.attach, self.trainer)
        return out

    return _attach_model_callbacks


def _fitting(adapter: Adapter, inner: Wrapped) -> Wrapped:
    """A fit's loop runs: for training, or for a tuner that has put other callbacks in."""

    @functools.wraps(inner)
    def run(self: Any) -> Any:
        fit = adapter.fit_of(self.trainer)
        if fit is None:
            return inner(self)
        if not fit.runs() or fit.window.is_training():
            return _aside(adapter, inner, self, evaluates=False)
        _safely(adapter, fit.begins)
        try:
            return inner(self)
        except BaseException:
            _safely(adapter, fit.fails)
            raise
        finally:
            _safely(adapter, fit.ends)

    return run


def _aside(adapter: Adapter, inner: Wrapped, loop: Any, *, evaluates: bool) -> Any:
    window = attaching.window_of(adapter)
    before = None if window is None else _safely(adapter, window.go_aside, evaluates)
    try:
        return inner(loop)
    finally:
        if window is not None and before is not None:
            window.come_back(before)


def _evaluating(adapter: Adapter, inner: Wrapped) -> Wrapped:
    """Validation, sanity check, test or prediction: none of it is training."""

    @functools.wraps(inner)
    def run(self: Any) -> Any:
        return _aside(adapter, inner, self, evaluates=True)

    return run


def _fetching(adapter: Adapter, inner: Wrapped) -> Wrapped:
    """A data fetcher takes a batch: the training's is input wait."""

    @functools.wraps(inner)
    def __next__(self: Any) -> Any:  # noqa: N807
        fit = adapter.fit
        if fit is None or not fit.window.is_training() or not fit.is_training_fetcher(self):
            return inner(self)
        return _fetch(adapter, fit, inner, self)

    return __next__


def _fetch(adapter: Adapter, fit: Fit, inner: Wrapped, fetcher: Any) -> Any:
    window = fit.window
    before = _safely(adapter, window.begin_fetch)
    try:
        batch = inner(fetcher)
    except StopIteration:
        window.end_epoch()
        raise
    except BaseException:
        window.st.abort_fetch(BETWEEN if before is None else before)
        raise
    window.end_fetch(fetcher.fetched == 1)
    return batch


def _transferring(adapter: Adapter, inner: Wrapped) -> Wrapped:
    """A training batch goes to the device: the window opens with it."""

    @functools.wraps(inner)
    def batch_to_device(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        fit = adapter.fit
        if fit is None or fit.strategy is not self or batch is None or not _safely(adapter, fit.opens):
            return inner(self, batch, *args, **kwargs)
        st = fit.window.st
        fit.window.open()
        _safely(adapter, st.count_samples, batch)
        before = _safely(adapter, st.enter_h2d)
        try:
            return inner(self, batch, *args, **kwargs)
        finally:
            st.leave_h2d(RESIDUAL if before is None else before)

    return batch_to_device


def _stepping(adapter: Adapter, inner: Wrapped) -> Wrapped:
    """``training_step``: model calls in it are forward; a compiled module's is forward itself."""

    @functools.wraps(inner)
    def training_step(self: Any, *args: Any, **kwargs: Any) -> Any:
        fit = adapter.fit
        if fit is None or fit.strategy is not self or not fit.window.is_open():
            return inner(self, *args, **kwargs)
        window = fit.window
        module = self.lightning_module
        window.begin_calls(self.model is not module)
        st = window.st
        before = None
        if getattr(module, "_compiler_ctx", None) is not None:
            before = _safely(adapter, st.enter_forward, True)
        try:
            return inner(self, *args, **kwargs)
        finally:
            if before is not None:
                _safely(adapter, st.leave_forward, before)
            window.end_calls()

    return training_step


def _updating(adapter: Adapter, inner: Wrapped) -> Wrapped:
    """``LightningOptimizer.step`` of manual optimization: what follows it is not the optimizer's."""

    @functools.wraps(inner)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return inner(self, *args, **kwargs)
        finally:
            fit = adapter.fit
            if fit is not None and fit.window.is_open() and not fit.is_automatic():
                fit.window.end_optimizer()

    return step


def _saving(adapter: Adapter, inner: Wrapped) -> Wrapped:
    """``Trainer.save_checkpoint``: gathering the state is part of writing it."""

    @functools.wraps(inner)
    def save_checkpoint(self: Any, *args: Any, **kwargs: Any) -> Any:
        st = adapter.session.st
        if not attaching.is_measured_thread(adapter):
            return inner(self, *args, **kwargs)
        before = st.enter_safely(RESIDUAL_CHECKPOINT, CHECKPOINT)
        try:
            return inner(self, *args, **kwargs)
        finally:
            st.leave_safely(before)

    return save_checkpoint
