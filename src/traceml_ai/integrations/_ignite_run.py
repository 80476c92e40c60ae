"""One run of an Ignite engine: fetches, handlers and what the residual holds, told to the step state.

Where steps begin and end is for the subclasses: MONAI's trainer tells it by its own events, any
other update function by the iteration it is called in.
"""

from __future__ import annotations

import os
from _thread import get_ident
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from traceml_ai.probe.columns import BETWEEN, HANDLERS, OPTIMIZER, RESIDUAL, UPDATES
from traceml_ai.probe.facts import describe_loader
from traceml_ai.probe.framework import Window
from traceml_ai.probe.safety import call_safely
from traceml_ai.probe.session import Session
from traceml_ai.probe.state import StepState

# A script that registers ever new functions must not make our books grow.
_MAX_NAMES = 64
_OTHERS = "others"
# The first steps load and compile: what the residual holds is counted from the third step on.
_SETTLED_STEPS = 2

Told = dict[int, Callable[[], None]]


class _Handlers:
    """What the handlers of an event found, and since when the next of them runs."""

    __slots__ = ("cur", "since", "updates", "window")

    def __init__(self, st: StepState) -> None:
        self.cur = st.cur
        self.window = st.window
        self.updates = st.acc[UPDATES]
        self.since = st.acc[RESIDUAL] if st.window else st.mark


class TimedHandlers(list[Any]):
    """The handlers of one event while its engine is measured: the list it was, timed when fired."""

    __slots__ = ("busy", "run")

    def __init__(self, entries: list[Any], run: Any) -> None:
        super().__init__(entries)
        self.run = run
        self.busy = False

    def __iter__(self) -> Iterator[Any]:
        # Only Ignite's own loop over them is timed, not what a handler or a thread does with the list.
        if self.busy or not len(self) or self.run.st.ident != get_ident():
            return super().__iter__()
        timed: Iterator[Any] = self.run.timed(self, super().__iter__())
        return timed

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy of an engine that is being measured is an engine like any other.
        return list, ([*list.__iter__(self)],)

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        from copy import deepcopy

        return deepcopy([*list.__iter__(self)], memo)


class EngineRun:
    """What is measured of one engine.

    Args:
        session: The measurement of this process.
        engine: The Ignite engine.
        events: ``ignite.engine.Events``.
        framework: What the summary calls it.
    """

    def __init__(self, session: Session, engine: Any, events: Any, framework: str) -> None:
        self.session = session
        self.st = session.st
        self.engine = engine
        self.framework = framework
        self.window = Window(session.st)
        self.told: Told = {}  # id of an event -> what to do before its handlers
        self.closing = 0  # id of the event whose handlers are the last of a step
        self.heard = 0  # id of the event that the function around `_fire_event` has just told
        self.reads: dict[str, Callable[[], None]] = {}  # attribute of the engine -> what reading it says
        self.stage = 0  # of an iteration, for those engines whose readings say something
        self.fresh = True  # the next batch is the first of a pass over the data
        self._restarting = self._described = False
        self._names: dict[int, tuple[Any, str]] = {}
        self.steps = 0
        self._stepping = False  # an optimizer's step, told by a hook
        self.hooks: list[Any] = []
        self.tensor = session.torch.Tensor
        self._plainly = session.torch._C.DisableTorchFunctionSubclass  # noqa: SLF001
        self.parts: dict[str, int] = {}
        self.costs: dict[str, int] = {}
        self._tell(events)

    def _tell(self, events: Any) -> None:
        """Which events say what."""
        self.told |= {
            id(events.GET_BATCH_STARTED): self.window.begin_fetch,
            id(events.GET_BATCH_COMPLETED): self.fetched,
            id(events.DATALOADER_STOP_ITERATION): self._restarts,
            id(events.EPOCH_COMPLETED): self._no_batch,
            id(events.TERMINATE): self._no_batch,
            id(events.TERMINATE_SINGLE_EPOCH): self._no_batch,
            id(events.COMPLETED): self._no_batch,
        }

    # -- the run ------------------------------------------------------------------------------

    def begins(self) -> None:
        """`Engine.run` was called."""
        values = self.session.facts.values
        self.parts = values.setdefault("residual_parts_ns", {})
        self.costs = values.setdefault("handlers_ns", {})
        values.setdefault("residual_parts_steps", 0)
        self.steps = values["residual_parts_steps"]
        self.window.begin(True)
        self.watch_handlers()

    def watch_handlers(self) -> None:
        """Time the handlers that are registered now; rarely called, at an epoch's begin."""
        registered = self.engine._event_handlers  # noqa: SLF001
        for event, entries in registered.items():
            if type(entries) is list and (entries or self.is_told(event)):
                registered[event] = self.timed_list(entries, event)

    def is_told(self, event: Any) -> bool:
        """Whether firing an event says something even if it has no handlers."""
        return id(event) in self.told

    def timed_list(self, entries: list[Any], _event: Any) -> TimedHandlers:
        """What an event's list of handlers is replaced by."""
        return TimedHandlers(entries, self)

    def fails(self) -> None:
        """An exception leaves the iteration, or the loader."""
        st = self.st
        if st.in_fetch:
            st.abort_fetch(st.base())
        st.in_optimizer = False
        self.window.abort()

    def ends(self) -> None:
        """`Engine.run` returns; also called after `fails`."""
        self.session.facts.values["residual_parts_steps"] = self.steps
        registered = self.engine._event_handlers  # noqa: SLF001
        for event, entries in registered.items():
            if isinstance(entries, TimedHandlers):
                registered[event] = [*list.__iter__(entries)]
        if self.st.in_fetch:
            self.st.abort_fetch(self.st.base())
        hooks, self.hooks = self.hooks, []
        for hook in hooks:
            hook.remove()
        self._stepping = False
        self.window.end()
        self.session.facts.values["dropped_groups"] += self.window.dropped
        self.window.dropped = 0
        self._names.clear()

    def describe(self, version: str | None, models: list[Any]) -> None:
        """Record what the engine says about itself."""
        values = self.session.facts.values
        values["framework"] = self.framework
        values["framework_version"] = version
        for model in models:
            name = type(model).__name__
            if name not in values["model"]:
                values["model"].append(name)

    def _describe_loader(self, loader: Any) -> None:
        """Record the training loader, first of all loaders."""
        if loader is not None:
            described, known = describe_loader(loader), self.session.facts.values["loaders"]
            known[:] = [described, *(other for other in known if other != described)][:8]

    # -- batches ------------------------------------------------------------------------------

    def fetched(self) -> None:
        """The batch arrived."""
        self.window.end_fetch(self.fresh)
        self.fresh = False

    def _no_batch(self) -> None:
        """A fetch that is under way brings no batch: what it took is the loader's."""
        if self.st.in_fetch:
            self.window.end_epoch()

    def _restarts(self) -> None:
        self._no_batch()
        # Ignite makes a new iterator and fetches from it without telling of the second fetch.
        self._restarting = True

    def iterator_is_made(self) -> None:
        """A new pass over the data begins."""
        self.fresh = True
        if not self._described:
            self._described = True
            self._describe_loader(self.engine.state.dataloader)
        if self._restarting:
            self._restarting = False
            self.window.begin_fetch()

    def samples(self) -> int:
        """Number of samples in the batch; 0 where it can't be told."""
        batch = self.engine.state.batch
        try:
            return self._samples(batch)
        except Exception:  # noqa: BLE001 - a batch may be anything
            return 0

    def _samples(self, batch: Any) -> int:
        values: Iterable[Any]
        if isinstance(batch, dict):
            found = batch.get("image")
            values = batch.values() if found is None else (found,)
        else:
            values = batch if isinstance(batch, (tuple, list)) else (batch,)
        for value in values:
            if isinstance(value, self.tensor):
                # Asked of a MetaTensor like this, as its own answers take longer than a step's books.
                with self._plainly():
                    return int(value.shape[0]) if value.dim() else 0
        return 0

    # -- handlers, and what the residual holds ------------------------------------------------

    def add_part(self, name: str, spent: int) -> None:
        """Some of the residual was spent on something that has a name."""
        add_to(self.parts, name, spent)

    def timed(self, handlers: TimedHandlers, entries: Iterator[Any]) -> Iterator[Any]:
        """The handlers of an event, each called by Ignite before the next is asked for.

        Whichever phase goes on, they are none of it, and what they read of the engine says nothing.
        An error of ours ends the timing, never the handlers.
        """
        stage, self.stage = self.stage, 0
        handlers.busy = True
        before = call_safely(self.st, "handlers", self._begin_handlers)
        try:
            for entry in entries:
                yield entry
                if before is not None:
                    try:
                        self._end_handler(before, entry[0])
                    except Exception as error:  # noqa: BLE001 - ours must not become the training's
                        self.st.fail("handlers", error)
        finally:  # a handler may raise
            handlers.busy = False
            self.stage = stage
            if before is not None:
                call_safely(self.st, "handlers", self._end_handlers, before)

    def _begin_handlers(self) -> _Handlers | None:
        """Inside the step they are residual, between steps they are named as such."""
        st = self.st
        if st.ident == -1:
            return None
        st.advance()
        before = _Handlers(st)
        if st.window:
            st.cur = RESIDUAL
        else:
            st.cur = HANDLERS if st.step else BETWEEN  # before the first step it is start-up
            st.in_optimizer = True  # what they train is not the trainer's
        return before

    def _end_handler(self, before: _Handlers, handler: Any) -> None:
        """A handler has returned."""
        st = self.st
        if st.ident == -1:
            return
        now = st.advance()
        since = before.since
        before.since = st.acc[RESIDUAL] if before.window else now
        if before.window:
            self.add_part(self.part_of(handler), before.since - since)
        elif st.step:
            add_to(self.costs, self.name_of(handler), now - since)

    def _end_handlers(self, before: _Handlers) -> None:
        """All have."""
        st = self.st
        if st.ident == -1:
            return
        st.advance()
        if before.window:
            st.acc[UPDATES] = before.updates  # what they update is not the trainer's update
        else:
            st.in_optimizer = False
        st.cur = before.cur

    def part_of(self, handler: Any) -> str:
        """What a handler inside the step is called."""
        return f"handler {self.name_of(handler)}"

    def name_of(self, handler: Any) -> str:
        """What a handler is called: its class, or its function."""
        known = self._names.get(id(handler))
        if known is None or known[0] is not handler:
            known = self._names[id(handler)] = (handler, handler_name(handler))
        return known[1]

    # -- optimizers ---------------------------------------------------------------------------

    def step_begins(self, optimizer: Any, *_args: Any) -> None:
        """An optimizer's step begins (a hook of optimizers)."""
        st = self.st
        try:
            if st.window and st.cur == RESIDUAL and st.ident == get_ident():
                st.advance()
                st.cur = OPTIMIZER
                self._stepping = True
                if st.device is not None:
                    st.device.begin(OPTIMIZER)
        except Exception as error:  # noqa: BLE001 - ours must not become the training's
            st.fail("optimizer", error)

    def step_ends(self, optimizer: Any, *_args: Any) -> None:
        """The step is over."""
        st = self.st
        try:
            if self._stepping and st.window:
                st.advance()
                st.cur = RESIDUAL
                if st.device is not None:
                    st.device.end()
            self._stepping = False
        except Exception as error:  # noqa: BLE001 - ours must not become the training's
            st.fail("optimizer", error)

    # -- steps --------------------------------------------------------------------------------

    def closes(self) -> None:
        """The last event of a step was fired, and its handlers have run."""

    def close(self, *, due: bool) -> None:
        """The step is over."""
        st = self.st
        self.window.close(self.engine.state.iteration, due=due)
        if st.cur == HANDLERS:
            st.cur = BETWEEN
        self.steps += 1
        if self.steps == st.step == _SETTLED_STEPS:
            self.parts.clear()
            self.steps = 0

    def suspend(self) -> None:
        """The iteration is over, the step is not."""
        self.window.suspend()
        if self.st.cur == HANDLERS:
            self.st.cur = BETWEEN


def add_to(books: dict[str, int], name: str, spent: int) -> None:
    """Add to what something with a name took."""
    if name in books:
        books[name] += spent
    else:
        name = name if len(books) < _MAX_NAMES else _OTHERS
        books[name] = books.get(name, 0) + spent


def handler_name(handler: Any) -> str:
    """What a handler is called: the class of an object or bound method, else the function's name."""
    parent = getattr(handler, "_parent", None)  # Ignite's wrapper of a handler with an event filter
    handler = (parent() if callable(parent) else None) or handler
    owner = getattr(handler, "__self__", None)
    if owner is not None and not isinstance(owner, type):
        return type(owner).__name__
    handler = getattr(handler, "func", handler)  # functools.partial
    name = getattr(handler, "__qualname__", None)
    if name is None:
        return type(handler).__name__
    name = str(name).rpartition("<locals>.")[2]
    code = getattr(handler, "__code__", None)
    if name != "<lambda>" or code is None:
        return name
    return f"<lambda> {os.path.basename(code.co_filename)}:{code.co_firstlineno}"
