"""The calls that are timed, and how each is replaced and put back.

Only functions and classes are patched, never an instance: nothing of ours can be reached from the
user's objects. A wrapper refers to nothing but the step state, builtins and torch, because a class
defined in a script may be pickled by value together with what was patched into it; the state then
travels as an inert stand-in (`StepState.__reduce__`).

Every wrapper passes through while the state's ``ident`` is not the calling thread's, so turning
measurement off is one store.

The wrappers of a step's four calls begin with a fast path for the common case (an open window of
an inferred or marked step), written out in place: in a real loop the caches are cold, and each
further function that is entered costs a microsecond, ten times what it costs in a tight loop.
The general case is in `StepState`'s methods; both do the same books.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from traceml_ai.probe.state import (
    BACKWARD,
    BETWEEN,
    BOUNDARIES,
    CHECKPOINT,
    FETCHES,
    FORWARD,
    INPUT,
    LOADER,
    MICROBATCHES,
    OPEN,
    OPTIMIZER,
    RESIDUAL,
    RESIDUAL_CHECKPOINT,
    SAMPLES,
    UPDATES,
    StepState,
)

Wrapped = Callable[..., Any]
_MISSING = object()


class Patches:
    """Attributes that were replaced, so that they can be put back in reverse order."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, object, object]] = []

    def set(self, owner: Any, name: str, value: object) -> None:
        """Replace ``owner.name``, remembering what its own ``__dict__`` held."""
        self._replaced.append((owner, name, vars(owner).get(name, _MISSING), value))
        setattr(owner, name, value)

    def restore(self) -> None:
        """Put everything back that is still ours."""
        for owner, name, before, ours in reversed(self._replaced):
            if vars(owner).get(name) is not ours:
                continue
            if before is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        self._replaced.clear()


def timed_next(st: StepState, inner: Wrapped, get_ident: Callable[[], int]) -> Wrapped:
    """Time ``_BaseDataLoaderIter.__next__``: what the training thread waits for a batch."""

    acc, clock = st.acc, st.clock

    @functools.wraps(inner)
    def __next__(self: Any) -> Any:  # noqa: N807
        if get_ident() != st.ident or st.in_fetch:
            return inner(self)
        if st.cur == BETWEEN and id(self) == st.train_iterator:
            now = clock()
            acc[BETWEEN] += now - st.mark
            st.mark = now
            st.cur = INPUT
            st.in_fetch = True
            try:
                data = inner(self)
            except StopIteration:
                st.end_fetch(BETWEEN)
                raise
            except BaseException:
                st.abort_fetch(BETWEEN)
                raise
            try:
                acc[SAMPLES] += data[0].shape[0]
            except Exception:  # noqa: BLE001 - another kind of batch
                st.count_samples(data)
            now = clock()
            acc[INPUT] += now - st.mark
            st.mark = now
            st.in_fetch = False
            acc[FETCHES] += 1
            acc[BOUNDARIES] += 1
            st.fetched = st.fresh_batch = True
            if st.marked:
                st.cur = BETWEEN
            else:
                acc[OPEN] = now
                st.window = True
                st.cur = RESIDUAL
            return data
        try:
            before = st.enter_fetch(self)
        except Exception as error:  # noqa: BLE001 - ours must not become the user's
            st.fail("input", error)
            return inner(self)
        try:
            data = inner(self)
        except StopIteration:
            st.end_fetch(before)
            raise
        except BaseException:
            st.abort_fetch(before)
            raise
        try:
            st.leave_fetch(before, data)
        except Exception as error:  # noqa: BLE001
            st.fail("input", error)
        return data

    return __next__


def timed_iter(st: StepState, inner: Wrapped, get_ident: Callable[[], int]) -> Wrapped:
    """Time ``DataLoader.__iter__``: starting an iteration (workers) is loader time, no input wait."""

    @functools.wraps(inner)
    def __iter__(self: Any) -> Any:  # noqa: N807
        if get_ident() != st.ident or st.in_fetch:
            return inner(self)
        before = st.enter(LOADER)
        try:
            iterator = inner(self)
        finally:
            st.leave(before)
        try:
            st.new_iteration(iterator, self)
        except Exception as error:  # noqa: BLE001
            st.fail("input", error)
        return iterator

    return __iter__


def timed_call(
    st: StepState,
    inner: Wrapped | None,
    module: type,
    get_ident: Callable[[], int],
    is_compiling: Callable[[], bool],
) -> Wrapped:
    """Time ``__call__`` of a measured model's class.

    Args:
        st: The step state.
        inner: The class's own ``__call__``; None when it inherits ``torch.nn.Module``'s, which is
            then looked up at each call, as tracers replace it for a while.
        module: ``torch.nn.Module``.
        get_ident: ``threading.get_ident``.
        is_compiling: ``torch.compiler.is_compiling``, first so that a compiler that traces a
            nested call folds this function away.
    """
    # What torch names the function that `__call__` is; keeps bound methods picklable.
    name = "_wrapped_call_impl" if inner is None else "__call__"
    # Local to the closure, as a class that is pickled by value takes along what it refers to.
    residual, forward, boundaries = RESIDUAL, FORWARD, BOUNDARIES

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        call = inner or module.__call__
        if (
            is_compiling()
            or st.no_forward
            or get_ident() != st.ident
            or id(self) not in st.targets
        ):
            return call(self, *args, **kwargs)
        if st.cur == residual and st.fetched and not st.hand_open and st.grad_enabled():
            acc = st.acc
            now = st.clock()
            acc[residual] += now - st.mark
            st.mark = now
            st.cur = forward
            st.no_forward = True
            try:
                out = call(self, *args, **kwargs)
            except BaseException:
                st.raised(residual)
                raise
            now = st.clock()
            acc[forward] += now - st.mark
            st.mark = now
            st.no_forward = False
            st.cur = residual
            acc[boundaries] += 1
            return out
        try:
            before = st.enter_forward(self.training)
        except Exception as error:  # noqa: BLE001
            st.fail("forward", error)
            return call(self, *args, **kwargs)
        try:
            out = call(self, *args, **kwargs)
        except BaseException:
            st.raised(before)
            raise
        try:
            st.leave_forward(before)
        except Exception as error:  # noqa: BLE001
            st.fail("forward", error)
        return out

    __call__.__name__ = name
    return __call__


def timed_backward(
    st: StepState,
    inner: Wrapped,
    get_ident: Callable[[], int],
    is_compiling: Callable[[], bool],
) -> Wrapped:
    """Time ``torch.autograd.backward`` or ``torch.autograd.grad``, the outermost call only."""

    acc, clock = st.acc, st.clock

    @functools.wraps(inner)
    def backward(*args: Any, **kwargs: Any) -> Any:
        if is_compiling() or st.in_backward or get_ident() != st.ident:
            return inner(*args, **kwargs)
        if st.cur == RESIDUAL and acc[FORWARD] and st.plain_backward:
            now = clock()
            acc[RESIDUAL] += now - st.mark
            st.mark = now
            st.cur = BACKWARD
            st.in_backward = st.no_forward = True
            try:
                out = inner(*args, **kwargs)
            except BaseException:
                st.raised(RESIDUAL)
                raise
            now = clock()
            acc[BACKWARD] += now - st.mark
            st.mark = now
            st.in_backward = st.no_forward = False
            st.cur = RESIDUAL
            acc[BOUNDARIES] += 1
            st.backwards += 1
            if st.fresh_batch:
                acc[MICROBATCHES] += 1
                st.fresh_batch = False
            return out
        was_forward = st.no_forward
        try:
            before = st.enter_backward()
        except Exception as error:  # noqa: BLE001
            st.fail("backward", error)
            return inner(*args, **kwargs)
        try:
            out = inner(*args, **kwargs)
        except BaseException:
            st.raised(before)
            raise
        try:
            st.leave_backward(before, was_forward)
        except Exception as error:  # noqa: BLE001
            st.fail("backward", error)
        return out

    return backward


def timed_step(
    st: StepState,
    inner: Wrapped,
    get_ident: Callable[[], int],
    is_compiling: Callable[[], bool],
) -> Wrapped:
    """Time an optimizer class's ``step``, the outermost call only."""
    # Local to the closure, as a class that is pickled by value takes along what it refers to.
    residual, optimizing, updates, boundaries = RESIDUAL, OPTIMIZER, UPDATES, BOUNDARIES

    @functools.wraps(inner)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or get_ident() != st.ident:
            return inner(self, *args, **kwargs)
        parameter = st.versioned.get(id(self))
        if parameter is not None:
            parameter = parameter()
        if parameter is not None and st.cur == residual and not st.hand_open:
            acc = st.acc
            version = parameter._version  # noqa: SLF001
            now = st.clock()
            acc[residual] += now - st.mark
            st.mark = now
            st.cur = optimizing
            st.in_optimizer = True
            st.took_effect = False
            try:
                out = inner(self, *args, **kwargs)
            except BaseException:
                st.raised(residual)
                raise
            now = st.clock()
            acc[optimizing] += now - st.mark
            st.mark = now
            st.in_optimizer = False
            st.cur = residual
            acc[boundaries] += 1
            if parameter._version != version or st.took_effect or st.recheck(self):  # noqa: SLF001
                acc[updates] += 1
                st.backwards = 0
                if not st.marked:
                    try:
                        st.close_by_update(now, id(self))
                    except Exception as error:  # noqa: BLE001
                        st.fail("optimizer", error)
            return out
        nested = st.in_optimizer
        try:
            watch = st.watch(self)
            before = 0 if nested else st.enter_optimizer()
        except Exception as error:  # noqa: BLE001
            st.fail("optimizer", error)
            return inner(self, *args, **kwargs)
        try:
            out = inner(self, *args, **kwargs)
        except BaseException:
            if not nested:
                st.raised(before)
            raise
        try:
            st.took_effect = st.judge(self, watch) or st.took_effect
            if not nested:
                st.leave_optimizer(before, self)
        except Exception as error:  # noqa: BLE001
            st.fail("optimizer", error)
        return out

    return step


def timed_scaler_step(st: StepState, inner: Wrapped, get_ident: Callable[[], int]) -> Wrapped:
    """Time ``GradScaler.step``: an update attempt that may skip ``optimizer.step``."""

    @functools.wraps(inner)
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if get_ident() != st.ident or st.in_optimizer:
            return inner(self, optimizer, *args, **kwargs)
        try:
            before = st.enter_optimizer()
        except Exception as error:  # noqa: BLE001
            st.fail("optimizer", error)
            return inner(self, optimizer, *args, **kwargs)
        try:
            out = inner(self, optimizer, *args, **kwargs)
        except BaseException:
            st.raised(before)
            raise
        try:
            st.leave_optimizer(before, optimizer, scaled=True)
        except Exception as error:  # noqa: BLE001
            st.fail("optimizer", error)
        return out

    return step


def timed_save(st: StepState, inner: Wrapped, get_ident: Callable[[], int]) -> Wrapped:
    """Time ``torch.save``: writing a checkpoint."""

    @functools.wraps(inner)
    def save(*args: Any, **kwargs: Any) -> Any:
        if get_ident() != st.ident or st.in_fetch:
            return inner(*args, **kwargs)
        before = st.enter_cause(RESIDUAL_CHECKPOINT, CHECKPOINT)
        try:
            return inner(*args, **kwargs)
        finally:
            st.leave(before)

    return save
