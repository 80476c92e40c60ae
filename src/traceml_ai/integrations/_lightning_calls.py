"""The calls of Lightning that no callback is told of, each timed by a function around it.

Every one passes through unless it belongs to the fit that is measured. Errors of ours turn
measuring off; they never become the training's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from traceml_ai.integrations import _lightning_attach as attaching
from traceml_ai.integrations import _lightning_precision as precision
from traceml_ai.integrations._lightning_attach import Adapter
from traceml_ai.integrations._lightning_fit import Fit
from traceml_ai.probe.columns import (
    ASIDE,
    BETWEEN,
    CHECKPOINT,
    FORWARDED,
    H2D,
    HANDLERS,
    IDLE,
    LOADER,
    OPENED,
    OWNED,
    RESIDUAL,
    RESIDUAL_CHECKPOINT,
    T_BETWEEN,
    T_CALLED,
    T_FETCH,
    T_FETCHED,
    T_HANDLERS,
    T_MOVING,
    T_READY,
    T_UPDATED,
)
from traceml_ai.probe.safety import call_safely
from traceml_ai.schema.step import RAW, TOLD

RAW_BEGIN, RAW_END = RAW["forward_begin"], RAW["forward_end"]
FORWARD_BEGIN, FORWARD_END = TOLD["forward_begin"], TOLD["forward_end"]
BACKWARD_BEGIN, BACKWARD_END = TOLD["backward_begin"], TOLD["backward_end"]
OPTIMIZER_BEGIN = TOLD["optimizer_begin"]
FETCH_BEGIN, FETCH_END = TOLD["fetch_begin"], TOLD["fetch_end"]
OPEN, H2D_END, SAMPLES = TOLD["open"], TOLD["h2d_end"], TOLD["samples"]
HANDLERS_END = TOLD["handlers_end"]
Wrapped = Callable[..., Any]
_FIT = "fit"


def install(adapter: Adapter) -> None:
    """Put the timed calls of a namespace in place."""
    connector = adapter.module("trainer.connectors.callback_connector")._CallbackConnector  # noqa: SLF001
    loops = adapter.module("loops.fit_loop")._FitLoop  # noqa: SLF001
    epochs = adapter.module("loops.training_epoch_loop")._TrainingEpochLoop  # noqa: SLF001
    evaluation = adapter.module("loops.evaluation_loop")._EvaluationLoop  # noqa: SLF001
    prediction = adapter.module("loops.prediction_loop")._PredictionLoop  # noqa: SLF001
    fetcher = adapter.module("loops.fetchers")._DataFetcher  # noqa: SLF001
    strategy = adapter.module("strategies.strategy").Strategy
    trainer = adapter.module("trainer.trainer").Trainer
    for owner, name, make in (
        (connector, "_attach_model_callbacks", _attaching),
        (loops, "run", _fitting),
        (loops, "on_advance_start", _handling),
        (loops, "on_advance_end", _handling),
        (epochs, "advance", _handling),
        (epochs, "update_lr_schedulers", _scheduling),
        (evaluation, "run", _evaluating),
        (prediction, "run", _evaluating),
        (fetcher, "__next__", _fetching),
        (fetcher, "__iter__", _starting),
        (fetcher, "teardown", _starting),
        (strategy, "batch_to_device", _transferring),
        (strategy, "training_step", _stepping),
        (trainer, "save_checkpoint", _saving),
    ):
        adapter.patches.set(owner, name, make(adapter, getattr(owner, name)))
    precision.install(adapter)


def _safely(adapter: Adapter, call: Callable[..., Any], *args: Any) -> Any:
    return call_safely(adapter.session.st, "lightning", call, *args)


def _attaching(_adapter: Adapter, inner: Wrapped) -> Wrapped:
    """Lightning has combined the callbacks of trainer and module: ours may join them."""

    @functools.wraps(inner)
    def _attach_model_callbacks(self: Any) -> Any:
        out = inner(self)
        if self.trainer.state.fn == _FIT:
            attaching.attach(self.trainer)
        return out

    return _attach_model_callbacks


def _fitting(adapter: Adapter, inner: Wrapped) -> Wrapped:
    """A fit's loop runs: for training, or for a tuner that has put other callbacks in."""

    @functools.wraps(inner)
    def run(self: Any) -> Any:
        fit = adapter.fit_of(self.trainer)
        if fit is None:
            return inner(self)
        if not _safely(adapter, fit.may_begin):
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


def _handling(adapter: Adapter, inner: Wrapped) -> Wrapped:
    """A stretch of the loop that ends with callbacks and loggers; ours is the first to know of them."""
    st = adapter.session.st

    told, clock = st.told, st.clock

    @functools.wraps(inner)
    def stretch(self: Any, *args: Any) -> Any:
        out = inner(self, *args)
        if st.stage == T_UPDATED and adapter.fit is not None:
            adapter.fit.batch_ends()  # this version updates learning rates elsewhere
        if st.stage == T_HANDLERS:
            told[HANDLERS_END] = clock()
            st.stage = T_BETWEEN
        elif st.cur == HANDLERS and adapter.fit is not None:
            adapter.fit.window.end_handlers()
        return out

    return stretch


def _scheduling(adapter: Adapter, inner: Wrapped) -> Wrapped:
    """Learning rates are updated: the last that happens in a plain batch before its callbacks."""
    st = adapter.session.st

    @functools.wraps(inner)
    def update_lr_schedulers(self: Any, interval: str, *args: Any, **kwargs: Any) -> None:
        inner(self, interval, *args, **kwargs)
        if st.stage != T_UPDATED or adapter.fit is None:
            return
        try:
            if interval != "step" or not self._num_ready_batches_reached():  # else the epoch's come too
                adapter.fit.batch_ends()
        except Exception as error:  # noqa: BLE001 - ours must not become the training's
            st.fail("lightning", error)

    return update_lr_schedulers


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
    st = adapter.session.st
    told, clock = st.told, st.clock

    @functools.wraps(inner)
    def __next__(self: Any) -> Any:  # noqa: N807
        fit = adapter.fit
        if fit is None:
            return inner(self)
        if st.stage == T_BETWEEN and self._combined_loader is fit.loader:
            st.stage = T_FETCH
            told[FETCH_BEGIN] = clock()
            try:
                batch = inner(self)
            except StopIteration:
                fit.window.end_epoch()
                raise
            except BaseException:
                st.abort_fetch(BETWEEN)
                raise
            if st.stage == T_FETCH and self.fetched != 1:
                told[FETCH_END] = clock()
                st.stage = T_FETCHED
            else:
                fit.window.end_fetch(self.fetched == 1)
            return batch
        if st.framework != OWNED:
            return inner(self)
        return _fetch(adapter, fit, inner, self)

    return __next__


def _fetch(adapter: Adapter, fit: Fit, inner: Wrapped, fetcher: Any) -> Any:
    """A fetch that is not part of a plain step."""
    st, window = adapter.session.st, fit.window
    if fetcher._combined_loader is not fit.loader and not _safely(adapter, fit.is_training_fetcher, fetcher):  # noqa: SLF001
        return inner(fetcher)
    window.begin_fetch()
    try:
        batch = inner(fetcher)
    except StopIteration:
        window.end_epoch()
        raise
    except BaseException:
        st.abort_fetch(st.base())
        raise
    window.end_fetch(fetcher.fetched == 1)
    return batch


def _starting(adapter: Adapter, inner: Wrapped) -> Wrapped:
    """A loader's workers stop, and start again for the next epoch."""
    st = adapter.session.st

    @functools.wraps(inner)
    def restart(self: Any) -> Any:
        if st.framework == ASIDE or not attaching.is_measured_thread(adapter):
            return inner(self)
        before = st.enter_safely(LOADER, LOADER)
        try:
            return inner(self)
        finally:
            st.leave_safely(before)

    return restart


def _transferring(adapter: Adapter, inner: Wrapped) -> Wrapped:
    """A training batch goes to the device: the window opens with it."""
    st = adapter.session.st
    told, clock = st.told, st.clock

    @functools.wraps(inner)
    def batch_to_device(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        fit = adapter.fit
        if fit is None or fit.strategy is not self or batch is None:
            return inner(self, batch, *args, **kwargs)
        if st.stage != T_FETCHED or fit.automatic._skip_backward:  # noqa: SLF001 - weights are averaged
            return _transfer(adapter, fit, inner, self, batch, *args, **kwargs)
        try:
            samples = batch[0].shape[0] if type(batch) is list else None
        except Exception:  # noqa: BLE001 - another kind of batch
            samples = None
        if samples is None:
            samples = _safely(adapter, fit.samples_in, batch)
            if st.stage != T_FETCHED:  # that failed
                return inner(self, batch, *args, **kwargs)
        told[SAMPLES] = samples
        told[OPEN] = clock()
        st.stage = T_MOVING
        out = inner(self, batch, *args, **kwargs)
        if st.stage == T_MOVING:
            told[H2D_END] = clock()
            st.stage = T_READY
        else:
            fit.window.end_transfer()
        return out

    return batch_to_device


def _transfer(
    adapter: Adapter, fit: Fit, inner: Wrapped, strategy: Any, batch: Any, *args: Any, **kwargs: Any
) -> Any:
    """A transfer that is not part of a plain step."""
    if not _safely(adapter, _open, adapter, fit, batch):
        return inner(strategy, batch, *args, **kwargs)
    try:
        return inner(strategy, batch, *args, **kwargs)
    finally:
        fit.window.end_transfer()


def _open(adapter: Adapter, fit: Fit, batch: Any) -> bool:
    """Open the window of a batch that is about to be moved, if it is to be trained on."""
    opens = adapter.session.st.framework == OWNED and fit.opens() and not fit.window.is_open()
    if opens:
        fit.window.open(fit.samples_in(batch), H2D)
    return opens


def _stepping(adapter: Adapter, inner: Wrapped) -> Wrapped:
    """``training_step``: model calls in it are forward; a compiled module's is forward itself."""
    st = adapter.session.st
    raw, told = st.raw, st.told

    @functools.wraps(inner)
    def training_step(self: Any, *args: Any, **kwargs: Any) -> Any:
        fit = adapter.fit
        if fit is None or fit.strategy is not self:
            return inner(self, *args, **kwargs)
        if st.stage != T_READY:
            if st.framework != OWNED:
                return inner(self, *args, **kwargs)
            _safely(adapter, fit.batch_starts)
            if not fit.window.is_open():
                return inner(self, *args, **kwargs)
            if not fit.ordinary or st.cur != RESIDUAL:
                return _odd_step(adapter, fit, inner, self, args, kwargs)
        st.no_forward = False
        if st.stage == T_READY or (not fit.by_hand and st.device is None and st.on_first_forward is None):
            st.stage = OPENED  # the fast path of a plain step notes one call
        try:
            return inner(self, *args, **kwargs)
        finally:
            if st.stage == FORWARDED and st.telling is not None:
                told[FORWARD_BEGIN] = raw[RAW_BEGIN]
                told[FORWARD_END] = raw[RAW_END]
                st.stage = T_CALLED
            elif st.stage >= IDLE:
                _safely(adapter, st.settle)
            st.no_forward = True

    return training_step


def _odd_step(adapter: Adapter, fit: Fit, inner: Wrapped, strategy: Any, args: Any, kwargs: Any) -> Any:
    """A training step through a wrapper of the module, compiled, or inside another phase."""
    st = adapter.session.st
    fit.window.begin_calls(fit.redirected)
    before = _safely(adapter, st.enter_forward, True) if fit.compiled else None
    try:
        return inner(strategy, *args, **kwargs)
    finally:
        if before is not None:
            _safely(adapter, st.leave_forward, before)
        fit.window.end_calls()


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
