"""The calls that are timed, each by a function around it (how that gets there is in `replaced`).

Only functions and classes are patched, never an instance: nothing of ours can be reached from the
user's objects. A wrapper refers to nothing but the step state, builtins and torch, because a class
defined in a script may be pickled by value together with what was patched into it; the state then
travels as an inert stand-in (`StepState.__reduce__`).

Every wrapper passes through while the state's ``ident`` is not the calling thread's, so turning
measurement off is one store.

The wrappers of a step's four calls begin with the fast path of a plain step: two time stamps. The
general case is in `StepState`'s methods. The fast path does not ask which thread is calling (that
takes a microsecond when the caches are cold): once a model, backward or optimizer was called on
another thread, no step is plain any more (`Plain.resting`).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from traceml_ai.probe.columns import (
    ASIDE,
    BACKWARDED,
    BETWEEN,
    CHECKPOINT,
    DIFFERENTIATING,
    FETCHED,
    FETCHING,
    FORWARDED,
    IDLE,
    IN_BACKWARD,
    IN_FETCH,
    IN_FORWARD,
    IN_OPTIMIZER,
    LOADER,
    OPENED,
    OWNED,
    PASS_CALL,
    RESIDUAL,
    RESIDUAL_CHECKPOINT,
)
from traceml_ai.probe.state import StepState
from traceml_ai.schema.step import RAW

OPEN = RAW["open"]
FETCH_BEGIN, FETCH_END = RAW["fetch_begin"], RAW["fetch_end"]
FORWARD_BEGIN, FORWARD_END = RAW["forward_begin"], RAW["forward_end"]
BACKWARD_BEGIN, BACKWARD_END = RAW["backward_begin"], RAW["backward_end"]
SAMPLES = RAW["samples"]

Wrapped = Callable[..., Any]


def timed_next(st: StepState, inner: Wrapped, get_ident: Callable[[], int]) -> Wrapped:
    """Time ``_BaseDataLoaderIter.__next__``: what the training thread waits for a batch."""
    raw, clock = st.raw, st.clock

    @functools.wraps(inner)
    def __next__(self: Any) -> Any:  # noqa: N807
        if st.stage == IDLE and st.train_iterator() is self:
            st.stage = IN_FETCH
            raw[FETCH_BEGIN] = clock()
            try:
                data = inner(self)
            except StopIteration:
                st.end_fetch(BETWEEN)
                raise
            except BaseException:
                st.abort_fetch(BETWEEN)
                raise
            if st.stage == IN_FETCH:
                raw[OPEN] = raw[FETCH_END] = clock()
                try:
                    # A list of tensors is what `default_collate` makes of tuples.
                    raw[SAMPLES] = data[0].shape[0] if type(data) is list else st.samples_in(data)
                except Exception:  # noqa: BLE001 - another kind of batch
                    raw[SAMPLES] = st.samples_in(data)
                st.stage = FETCHED if st.marked else OPENED
                return data
            before = BETWEEN
        elif st.framework or st.in_fetch or st.stage == IN_FETCH or get_ident() != st.ident:
            return inner(self)  # a framework tells which fetches are training's
        else:
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
        if get_ident() != st.ident or st.in_fetch or st.stage in FETCHING or st.framework == ASIDE:
            return inner(self)
        before = st.enter_safely(LOADER, LOADER)
        try:
            iterator = inner(self)
        finally:
            st.leave_safely(before)
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
        is_compiling: ``torch.compiler.is_dynamo_compiling``, first so that a compiler that traces a
            nested call folds this function away.
    """
    raw, clock = st.raw, st.clock

    @functools.wraps(inner or module.__call__)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807, PLR0911 - a call less
        call = inner or module.__call__
        if is_compiling():
            return call(self, *args, **kwargs)
        if st.stage == OPENED and st.plain_model() is self and st.grad_enabled():
            st.stage = IN_FORWARD
            raw[FORWARD_BEGIN] = clock()
            try:
                out = call(self, *args, **kwargs)
            except BaseException:
                st.raised(RESIDUAL)
                raise
            if st.stage == IN_FORWARD:
                raw[FORWARD_END] = clock()
                st.stage = FORWARDED
                return out
            before = RESIDUAL
        elif st.no_forward or (st.stage >= IN_FORWARD and st.stage != IN_OPTIMIZER):
            return call(self, *args, **kwargs)
        elif get_ident() != st.ident:
            st.note_foreign(self)
            return call(self, *args, **kwargs)
        elif (model := st.targets.get(id(self))) is None:
            st.note_unmeasured(self)
            return call(self, *args, **kwargs)
        elif st.framework == PASS_CALL:
            st.framework = OWNED
            return call(self, *args, **kwargs)
        else:
            st.plain_model = model
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

    return __call__


def timed_backward(
    st: StepState,
    inner: Wrapped,
    get_ident: Callable[[], int],
    is_compiling: Callable[[], bool],
) -> Wrapped:
    """Time ``torch.autograd.backward`` or ``torch.autograd.grad``, the outermost call only."""

    @functools.wraps(inner)
    def backward(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return inner(*args, **kwargs)
        if (
            st.in_backward
            or st.stage in DIFFERENTIATING
            or (get_ident() != st.ident and not st.adopt_or_count(get_ident()))
        ):
            return inner(*args, **kwargs)
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
            st.leave_backward(before, was_forward=was_forward, wrt=_wrt(inner, args, kwargs))
        except Exception as error:  # noqa: BLE001
            st.fail("backward", error)
        return out

    plain = _plain_backward(st, inner, backward, is_compiling)
    return plain if _parameters(plain) == _parameters(inner) else backward


def _plain_backward(
    st: StepState, inner: Wrapped, general: Wrapped, is_compiling: Callable[[], bool]
) -> Wrapped:
    """The fast path before ``general``, for a ``torch.autograd.backward`` that takes the same parameters.

    With its parameters by name: packing and unpacking them would cost as much as the rest.
    """
    raw, clock = st.raw, st.clock

    @functools.wraps(inner)
    def backward(
        tensors: Any,
        grad_tensors: Any = None,
        retain_graph: Any = None,
        create_graph: Any = False,
        grad_variables: Any = None,
        inputs: Any = None,
    ) -> Any:
        if is_compiling():
            return inner(tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs)
        if st.stage != FORWARDED:
            if st.in_backward or st.stage in DIFFERENTIATING:
                return inner(tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs)
            return general(tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs)
        st.stage = IN_BACKWARD
        raw[BACKWARD_BEGIN] = clock()
        try:
            out = inner(tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs)
        except BaseException:
            st.raised(RESIDUAL)
            raise
        if st.stage == IN_BACKWARD:
            raw[BACKWARD_END] = clock()
            st.stage = BACKWARDED
            return out
        try:
            st.leave_backward(RESIDUAL, was_forward=False)
        except Exception as error:  # noqa: BLE001
            st.fail("backward", error)
        return out

    return backward


def _parameters(function: Any) -> tuple[Any, ...] | None:
    """The parameters that a Python function itself takes, not one that it wraps; None of any other."""
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    starred = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    names = code.co_varnames[: code.co_argcount]
    return names, function.__defaults__, code.co_kwonlyargcount, starred


def _wrt(inner: Wrapped, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
    """The inputs of a call of ``autograd.grad``."""
    if inner.__name__ != "grad":
        return None
    return kwargs.get("inputs", args[1] if len(args) > 1 else None)


def timed_to(st: StepState, inner: Wrapped, get_ident: Callable[[], int]) -> Wrapped:
    """Time ``Tensor.to`` and ``Tensor.cuda``: copies from the host to a device, inside a step."""

    @functools.wraps(inner)
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        if get_ident() != st.ident or st.cur != RESIDUAL or not self.is_cpu:
            return inner(self, *args, **kwargs)
        if inner.__name__ == "to" and not _names_device(args, kwargs):
            return inner(self, *args, **kwargs)
        try:
            before = st.enter_h2d()
        except Exception as error:  # noqa: BLE001
            st.fail("h2d", error)
            return inner(self, *args, **kwargs)
        try:
            return inner(self, *args, **kwargs)
        finally:
            st.leave_h2d(before)

    return to


def _names_device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the arguments of ``Tensor.to`` name another device than the CPU."""
    target = kwargs.get("device", args[0] if args else None)
    target = getattr(target, "device", target)  # `to(other)`
    kind = target if isinstance(target, str) else getattr(target, "type", None)
    return isinstance(target, int) or (isinstance(kind, str) and not kind.startswith("cpu"))


def timed_save(st: StepState, inner: Wrapped, get_ident: Callable[[], int]) -> Wrapped:
    """Time ``torch.save``: writing a checkpoint."""

    @functools.wraps(inner)
    def save(*args: Any, **kwargs: Any) -> Any:
        if get_ident() != st.ident or st.in_fetch or st.stage in FETCHING:
            return inner(*args, **kwargs)
        before = st.enter_safely(RESIDUAL_CHECKPOINT, CHECKPOINT)
        try:
            return inner(*args, **kwargs)
        finally:
            st.leave_safely(before)

    return save
