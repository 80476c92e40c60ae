"""The calls of Ignite that tell what an engine does, each timed by a function around it.

Every one passes through unless it belongs to the engine that is measured. Errors of ours turn
measuring off; they never become the training's.
"""

from __future__ import annotations

import functools
import sys
import weakref
from _thread import get_ident
from collections.abc import Callable
from typing import Any

from traceml_ai.integrations._ignite_run import EngineRun
from traceml_ai.probe.columns import LOADER, NONE, OWNED
from traceml_ai.probe.framework import Aside, Window
from traceml_ai.probe.replaced import Patch, Patches
from traceml_ai.probe.safety import call_safely
from traceml_ai.probe.session import Session

Wrapped = Callable[..., Any]
# What is to be measured of an engine that is about to run; None when nothing is.
Plan = Callable[[Any], EngineRun | None]


class Claims:
    """What engines' handlers were told, by engine: by its identity, as a class may make it unhashable."""

    def __init__(self) -> None:
        self._told: dict[int, tuple[weakref.ref[Any], bool]] = {}

    def __contains__(self, engine: object) -> bool:
        return id(engine) in self._told

    def __setitem__(self, engine: Any, accepted: bool) -> None:
        key, told = id(engine), self._told
        told[key] = weakref.ref(engine, lambda _ref: told.pop(key, None)), accepted

    def get(self, engine: object, default: bool) -> bool:
        """Whether an engine's handler was accepted."""
        known = self._told.get(id(engine))
        return default if known is None else known[1]


class Adapter:
    """Ignite in this process.

    Args:
        session: The measurement of this process.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.patches = Patches()
        self.run: EngineRun | None = None  # the engine that runs and is measured
        self.plans: list[Plan] = []  # of Ignite by hand, of MONAI
        self.firing: Patch | None = None  # of ``Engine._fire_event``
        self.is_evaluator: Callable[[Any], bool] = _never
        self.is_unwanted: Callable[[Any], bool] = _never  # nothing of its run may be published

    @property
    def events(self) -> Any:
        """``ignite.engine.Events``."""
        return sys.modules["ignite.engine.events"].Events

    def plan(self, engine: Any) -> EngineRun | None:
        """What to measure of an engine that is about to run."""
        for plan in self.plans:
            run = plan(engine)
            if run is not None:
                return run
        return None


def _never(_engine: Any) -> bool:
    return False


_adapter: Adapter | None = None


def adapter_of(session: Session) -> Adapter:
    """The adapter of this process, with Ignite's calls in place. Ignite must be imported.

    Raises:
        AttributeError: This version of Ignite is not known.
    """
    global _adapter  # noqa: PLW0603 - one Ignite in a process
    if _adapter is None or _adapter.session is not session:
        made = Adapter(session)
        try:
            _install(made)
        except AttributeError:
            made.patches.restore()
            raise
        _adapter = made
    return _adapter


def _install(adapter: Adapter) -> None:
    engine = sys.modules["ignite.engine.engine"].Engine
    for name, make in (
        ("run", _running),
        ("_fire_event", _firing),
        ("_handle_exception", _failing),
        ("_setup_dataloader_iter", _iterating),
    ):
        adapter.patches.set(engine, name, make(adapter, getattr(engine, name)))
    adapter.firing = adapter.patches.of(engine, "_fire_event")


def safely(adapter: Adapter, call: Callable[..., Any], *args: Any) -> Any:
    """Call something of ours; an error of it turns measuring off."""
    return call_safely(adapter.session.st, "ignite", call, *args)


def _running(adapter: Adapter, inner: Wrapped) -> Wrapped:
    """An engine runs: the one that is measured, one inside it, or any other."""
    st = adapter.session.st

    @functools.wraps(inner)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if st.ident == -1:
            return inner(self, *args, **kwargs)
        if adapter.run is not None or st.framework != NONE:
            return _aside(adapter, inner, self, args, kwargs)
        made = safely(adapter, adapter.plan, self)
        if made is None:
            if safely(adapter, _belongs_aside, adapter, self):
                return _aside(adapter, inner, self, args, kwargs)
            return inner(self, *args, **kwargs)
        return _measured(adapter, made, inner, self, args, kwargs)

    return run


def _belongs_aside(adapter: Adapter, engine: Any) -> bool:
    return adapter.is_evaluator(engine) or adapter.is_unwanted(engine)


def _measured(adapter: Adapter, made: EngineRun, inner: Wrapped, engine: Any, args: Any, kwargs: Any) -> Any:
    adapter.run = made
    safely(adapter, made.begins)
    try:
        return inner(engine, *args, **kwargs)
    except BaseException:
        safely(adapter, made.fails)
        raise
    finally:
        adapter.run = None
        safely(adapter, made.ends)


def _aside(adapter: Adapter, inner: Wrapped, engine: Any, args: Any, kwargs: Any) -> Any:
    """An engine whose iterations are not what is measured: an evaluation, mostly."""
    st = adapter.session.st
    if st.ident != get_ident():
        return inner(engine, *args, **kwargs)
    window = Window(st) if adapter.run is None else adapter.run.window
    evaluates = not safely(adapter, adapter.is_unwanted, engine)
    before: Aside | None = safely(adapter, window.go_aside, evaluates)
    try:
        return inner(engine, *args, **kwargs)
    finally:
        if before is not None:
            window.come_back(before)


def _firing(adapter: Adapter, inner: Wrapped) -> Wrapped:
    """An event is fired: what lies before its handlers, and after them."""
    st = adapter.session.st

    @functools.wraps(inner)
    def _fire_event(self: Any, event_name: Any, *args: Any, **kwargs: Any) -> None:
        run = adapter.run
        if run is None or run.engine is not self or st.framework != OWNED:
            inner(self, event_name, *args, **kwargs)
            return
        key = id(event_name)
        told = run.told.get(key)
        if told is not None:
            try:
                told()
            except Exception as error:  # noqa: BLE001 - ours must not become the training's
                st.fail("ignite", error)
            run.heard = key
        if args or kwargs:
            inner(self, event_name, *args, **kwargs)
        else:
            inner(self, event_name)
        run.heard = 0
        if key == run.closing and st.framework == OWNED:
            try:
                run.closes()
            except Exception as error:  # noqa: BLE001 - ours must not become the training's
                st.fail("ignite", error)

    return _fire_event


def _failing(adapter: Adapter, inner: Wrapped) -> Wrapped:
    """An iteration has failed; a handler may go on all the same."""

    @functools.wraps(inner)
    def _handle_exception(self: Any, *args: Any, **kwargs: Any) -> Any:
        run = adapter.run
        if run is not None and run.engine is self:
            safely(adapter, run.fails)
        return inner(self, *args, **kwargs)

    return _handle_exception


def _iterating(adapter: Adapter, inner: Wrapped) -> Wrapped:
    """A pass over the data begins: starting workers is no input wait."""
    st = adapter.session.st

    @functools.wraps(inner)
    def _setup_dataloader_iter(self: Any) -> Any:
        run = adapter.run
        if run is None or run.engine is not self or st.framework != OWNED:
            return inner(self)
        before = st.enter_safely(LOADER, LOADER)
        try:
            return inner(self)
        finally:
            st.leave_safely(before)
            safely(adapter, run.iterator_is_made)

    return _setup_dataloader_iter
