"""The lists of handlers of a trainer whose plain steps are noted: firing an event iterates over its list."""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from traceml_ai.integrations._ignite_run import TimedHandlers
from traceml_ai.probe.columns import (
    T_BACKWARD,
    T_BETWEEN,
    T_CLOSING,
    T_UPDATED,
)
from traceml_ai.probe.safety import call_safely
from traceml_ai.schema.step import TOLD

if TYPE_CHECKING:
    from traceml_ai.integrations._monai_noted import NotedRun

OPTIMIZER_END = TOLD["optimizer_end"]
_NOTHING: Iterator[Any] = iter(())


class NotedHandlers(TimedHandlers):
    """The handlers of an event that no plain step depends on."""

    __slots__ = ("engine", "event", "st", "tells")
    run: NotedRun

    def __init__(self, entries: list[Any], run: NotedRun, event: Any) -> None:
        super().__init__(entries, run)
        self.engine = run.engine
        self.event = event
        self.st = run.st
        self.tells = id(event) in run.told  # the run has to know that it was fired

    def __iter__(self) -> Iterator[Any]:
        if self.tells:
            return _fired(self)
        if not self:
            return _NOTHING
        st = self.st
        its_turn = self.engine.last_event_name is self.event and not self.busy
        if st.stage == T_BETWEEN and its_turn and st.ident == get_ident():
            return self.run.between(self, list.__iter__(self))
        return _fired(self)


class Boundary(NotedHandlers):
    """The handlers of an event that ends a part of a plain step, in which it has none."""

    __slots__ = ("after", "at", "before", "due", "space", "then", "told")

    def __init__(
        self, entries: list[Any], run: NotedRun, event: Any, due: int, stamp: str, then: int
    ) -> None:
        super().__init__(entries, run, event)
        self.told = run.st.told
        self.due, self.at, self.then = due, TOLD[stamp], then
        # Around the backward the function around ``torch.autograd.backward`` is taken out.
        patch = run.backward
        self.space = vars(patch.owner) if patch is not None and T_BACKWARD in (due, then) else None
        if patch is not None:
            both = patch.ours, patch.before
            self.before, self.after = both if then == T_BACKWARD else reversed(both)

    def __iter__(self) -> Iterator[Any]:
        st = self.st
        if st.stage == self.due and self.engine.last_event_name is self.event and not self:
            self.told[self.at] = st.clock()
            st.stage = self.then
            if self.space is not None and self.space["backward"] is self.before:
                self.space["backward"] = self.after
            return _NOTHING
        return super().__iter__()


class Completed(NotedHandlers):
    """The handlers of the last event of a step: decollation and postprocessing, mostly."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        st = self.st
        if st.stage != T_UPDATED or self.engine.last_event_name is not self.event:
            return super().__iter__()
        now = st.told[OPTIMIZER_END] = st.clock()
        if self:
            st.stage = T_CLOSING
            return self.run.completing(self, list.__iter__(self))
        self.run.close_noted(now)
        return _NOTHING


def _fired(handlers: NotedHandlers) -> Iterator[Any]:
    """`NotedRun.fired`, whose errors leave the handlers as they are."""
    found: Iterator[Any] | None = call_safely(handlers.st, "monai", handlers.run.fired, handlers)
    return list.__iter__(handlers) if found is None else found
