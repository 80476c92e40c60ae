"""Plain steps of MONAI's trainer, of which only time stamps are noted.

A step of the trainer passes a dozen boundaries, and telling each to the books costs several times
what a time stamp does. So once steps are plain (one batch, backward and update each, and no gradient
scaler) the boundaries are noted in `Plain.told`: events by the lists of handlers that Ignite iterates
over when it fires them, readings by `_monai_readings`. The function around ``Engine._fire_event`` is taken
out meanwhile, and around the backward that of autograd's, as each call costs. Whatever is not due brings
the books up to date (`Settling.settle`), and the step goes on in them as `SupervisedRun` has it; there
too the lists tell what the function around ``_fire_event`` has not, as somebody may have replaced it.
"""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Iterator
from typing import Any

from traceml_ai.integrations._ignite_calls import Adapter
from traceml_ai.integrations._ignite_run import TimedHandlers, add_to
from traceml_ai.integrations._monai_lists import OPTIMIZER_END, Boundary, Completed, NotedHandlers
from traceml_ai.integrations._monai_readings import PREPARED, ZEROED
from traceml_ai.integrations._monai_run import (
    BACKWARD_STAGE,
    FORWARD_STAGE,
    LOSS,
    OUT,
    PREPARE,
    PREPARING,
    READY,
    TELL_EVERY,
    TRAIN,
    TRAINING,
    UPDATING,
    ZERO,
    ZEROING,
    SupervisedRun,
)
from traceml_ai.probe.columns import (
    BETWEEN,
    HANDLERS,
    IDLE,
    RESIDUAL,
    T_BACKWARD,
    T_BACKWARDED,
    T_BETWEEN,
    T_CALLED,
    T_CLOSING,
    T_FETCH,
    T_FETCHED,
    T_HANDLERS,
    T_INFERRING,
    T_OPTIMIZER,
    T_READY,
    T_TRAINING,
    T_UPDATED,
    T_ZEROING,
    UPDATES,
)
from traceml_ai.probe.safety import call_safely
from traceml_ai.probe.session import Session
from traceml_ai.schema.step import TOLD

BEGIN, HANDLERS_END, OPEN = TOLD["begin"], TOLD["handlers_end"], TOLD["open"]
FORWARD_BEGIN, FORWARD_END = TOLD["forward_begin"], TOLD["forward_end"]
BACKWARD_BEGIN = TOLD["backward_begin"]
GLOBAL_STEP = TOLD["global_step"]

# Timed boundaries of a plain step.
_BOUNDARIES = 11
# A stretch of plain steps that ends at once may do so again: the next one is put off, longer each time.
_SHORTEST, _LONGEST_WAIT = 2, 256

# The stage of `SupervisedRun` that a plain step's stage is, and how many parts of the residual are over.
_STAGES = {
    T_FETCHED: (READY, 0),
    T_READY: (PREPARING, 0),
    T_TRAINING: (TRAINING, 1),
    T_ZEROING: (ZEROING, 2),
    T_INFERRING: (FORWARD_STAGE, 3),
    T_CALLED: (FORWARD_STAGE, 3),
    T_BACKWARD: (BACKWARD_STAGE, 4),
    T_BACKWARDED: (UPDATING, 4),
    T_OPTIMIZER: (UPDATING, 4),
    T_UPDATED: (UPDATING, 4),
    T_CLOSING: (OUT, 4),
}
_PARTS = (PREPARE, TRAIN, ZERO, LOSS)


class NotedRun(SupervisedRun):
    """A run whose steps may be plain.

    Args:
        session: The measurement of this process.
        engine: The trainer.
        adapter: Ignite in this process.
        iteration_events: MONAI's ``IterationEvents``.
    """

    def __init__(self, session: Session, engine: Any, adapter: Adapter, iteration_events: Any) -> None:
        events, own = adapter.events, iteration_events
        super().__init__(session, engine, events, own)
        self.backward = session.patches.of(session.torch.autograd, "backward")
        self._firing = adapter.firing
        self._marks = self.readings.marks
        # The events themselves, by what is equal to them: with a filter, say.
        self._known = {event: event for event in (*events, *own)}
        self._completed = own.MODEL_COMPLETED
        self._bounds: dict[Any, tuple[int, str, int]] = {
            events.GET_BATCH_STARTED: (T_BETWEEN, "fetch_begin", T_FETCH),
            events.GET_BATCH_COMPLETED: (T_FETCH, "fetch_end", T_FETCHED),
            own.FORWARD_COMPLETED: (T_INFERRING, "forward_end", T_CALLED),
            own.LOSS_COMPLETED: (T_CALLED, "backward_begin", T_BACKWARD),
            own.BACKWARD_COMPLETED: (T_BACKWARD, "backward_end", T_BACKWARDED),
        }
        self._since = self._wait = self._not_before = 0
        self.window.listen = self._listen

    # -- the run ------------------------------------------------------------------------------

    def watch_handlers(self) -> None:
        """Time the handlers that are registered now; rarely called, at an epoch's begin."""
        registered = self.engine._event_handlers  # noqa: SLF001
        for event in self._known:
            if id(event) in self.told:  # as firing it would
                registered.setdefault(event, [])
        super().watch_handlers()

    def is_told(self, event: Any) -> bool:
        """Whether firing an event says something even if it has no handlers."""
        return super().is_told(self._known.get(event, event))

    def timed_list(self, entries: list[Any], event: Any) -> TimedHandlers:
        """What an event's list of handlers is replaced by."""
        event = self._known.get(event, event)
        bound = self._bounds.get(event)
        if bound is not None:
            return Boundary(entries, self, event, *bound)
        kind = Completed if event is self._completed else NotedHandlers
        return kind(entries, self, event)

    def fails(self) -> None:
        """An exception leaves the iteration, or the loader."""
        self._settle()
        super().fails()

    def ends(self) -> None:
        """`Engine.run` returns."""
        self._settle()
        self._put_back(OUT)  # if measuring was turned off
        super().ends()

    def _settle(self) -> None:
        if self.st.stage >= IDLE:
            call_safely(self.st, "monai", self.st.settle)

    # -- from the books to plain steps, and back --------------------------------------------------

    def closes(self) -> None:
        """The last event of a step was fired, and its handlers have run."""
        before = self.steps
        super().closes()
        if self.steps > max(before, self._not_before) and self._may_rest():
            self.window.rest()

    def _may_rest(self) -> bool:
        """Whether the next step may be plain, as far as the trainer is concerned."""
        if self.hooks or not self.window.was_plain or getattr(self.engine, "accumulation_steps", 1) != 1:
            return False
        registered = self.engine._event_handlers  # noqa: SLF001
        if not all(
            isinstance(registered.get(event), NotedHandlers) for event in (*self._bounds, self._completed)
        ):
            return False  # somebody has replaced a list
        if self._firing is None or not self._firing.is_in_place() or not self.readings.are_direct:
            return False
        return hasattr(self.engine, "last_event_name")

    def _listen(self, stage: int | None) -> None:
        """Plain steps begin, or have ended at a stage."""
        st = self.st
        try:
            if stage is None:
                if self._firing is not None:
                    self._firing.take_out()
                st.told[HANDLERS_END] = st.told[BEGIN]
                st.told[TOLD["boundaries"]] = _BOUNDARIES
                st.stage = T_BETWEEN
                self._since = self.steps
                return
            self._put_back(stage)
            self._wait = (
                0 if self.steps - self._since >= _SHORTEST else min(2 * self._wait + 1, _LONGEST_WAIT)
            )
            self._not_before = self.steps + self._wait
            self.stage, parts = _STAGES.get(stage, (OUT, 0))
            self._due = stage in (T_OPTIMIZER, T_UPDATED, T_CLOSING)
            self._scaled = self._stepped = False
            self._settle_parts(stage, parts)
        except Exception as error:  # noqa: BLE001 - ours must not become the training's
            st.fail("monai", error)

    def _put_back(self, stage: int) -> None:
        """Have in place again what plain steps do without; ``stage``: at which they have ended."""
        if self.backward is not None and stage == T_BACKWARD:
            self.backward.is_out = True
            self.backward.put_back()
        if self._firing is not None:
            self._firing.put_back()

    def _settle_parts(self, stage: int, parts: int) -> None:
        """Count the parts of the residual that are over."""
        told, marks, st = self.st.told, self._marks, self.st
        ends = (told[OPEN], marks[PREPARED], marks[ZEROED], told[FORWARD_BEGIN])
        begins = (*ends[:-1], told[FORWARD_END])
        for part, begin, end in zip(_PARTS[:parts], begins, (*ends[1:], told[BACKWARD_BEGIN]), strict=False):
            self._spent[part] += end - begin
        if stage in (T_TRAINING, T_ZEROING):
            now = ends[parts]
            st.acc[RESIDUAL] += now - st.mark
            st.mark = now

    # -- plain steps ----------------------------------------------------------------------------

    def fired(self, handlers: NotedHandlers) -> Iterator[Any]:
        """What Ignite iterates over for an event that ends no part of a plain step, or not in time."""
        entries = list.__iter__(handlers)
        st, event, tells = self.st, handlers.event, handlers.tells
        if st.ident != get_ident():
            return entries
        fired = getattr(handlers.engine, "last_event_name", event)
        if handlers.busy or (fired is not event and fired != event):
            # Somebody looks at the list, and may replace it.
            if tells and st.telling is self.window:
                st.settle()
            return entries
        if st.stage == T_BETWEEN and not tells:
            return self.between(handlers, entries)
        if st.telling is not self.window:
            heard, self.heard = self.heard, 0
            if not tells or heard == id(event):  # the function around `_fire_event` has told it
                return self.timed(handlers, entries) if len(handlers) else entries
        elif st.stage == T_HANDLERS and not tells:
            return entries  # fired by a handler, of which it is a part
        else:
            st.settle()
        told = self.told.get(id(event))
        if told is not None:
            told()
        if len(handlers):
            entries = self.timed(handlers, entries)
        return self._then_close(entries) if event is self._completed else entries

    def _then_close(self, entries: Iterator[Any]) -> Iterator[Any]:
        """The handlers of the last event, and what the function around ``_fire_event`` does after them."""
        yield from entries
        call_safely(self.st, "monai", self.closes)

    def completing(self, handlers: NotedHandlers, entries: Iterator[Any]) -> Iterator[Any]:
        """The handlers of a plain step's last event; then the step is over."""
        st, parts, names = self.st, self.parts, self._part_names
        handlers.busy = True
        now = since = st.told[OPTIMIZER_END]
        try:
            for entry in entries:
                yield entry
                try:
                    now = st.clock()
                    if st.stage == T_CLOSING:
                        try:
                            parts[names[id(entry[0])]] += now - since
                        except KeyError:
                            self.add_part(self.part_of(entry[0]), now - since)
                    since = now
                except Exception as error:  # noqa: BLE001 - ours must not become the training's
                    st.fail("monai", error)
        finally:  # a handler may raise
            handlers.busy = False
        if st.stage == T_CLOSING:
            self.close_noted(now)
            return
        try:
            if st.window:
                st.advance()
                st.acc[UPDATES] = 1  # what they update is not the trainer's update
                st.cur = RESIDUAL
            self.closes()
        except Exception as error:  # noqa: BLE001 - ours must not become the training's
            st.fail("monai", error)

    def close_noted(self, now: int) -> None:
        """A plain step is over."""
        st = self.st
        try:
            told, spent = st.told, self._spent
            prepared, zeroed = self._marks
            begun = told[FORWARD_BEGIN]
            spent[PREPARE] += prepared - told[OPEN]
            spent[TRAIN] += zeroed - prepared
            spent[ZERO] += begun - zeroed
            spent[LOSS] += told[BACKWARD_BEGIN] - told[FORWARD_END]
            told[GLOBAL_STEP] = self.engine.state.iteration + 1
            self.steps = steps = self.steps + 1
            if not steps % TELL_EVERY:
                self._tell_parts()
            st.close_noted(told, now, T_HANDLERS)
            if st.stage == T_HANDLERS:
                told[HANDLERS_END] = told[BEGIN]
                st.stage = T_BETWEEN
            elif st.cur == HANDLERS:
                st.cur = BETWEEN
        except Exception as error:  # noqa: BLE001 - ours must not become the training's
            st.fail("monai", error)

    def between(self, handlers: NotedHandlers, entries: Iterator[Any]) -> Iterator[Any]:
        """Handlers between plain steps, each named."""
        st, told, costs, names = self.st, self.st.told, self.costs, self._names
        handlers.busy = True
        st.stage = T_HANDLERS
        st.in_optimizer = True  # what they train is not the trainer's
        since = st.clock()
        try:
            for entry in entries:
                yield entry
                try:
                    now = st.clock()
                    spent, since = now - since, now
                    if st.stage == T_HANDLERS:
                        told[HANDLERS_END] += spent
                    try:
                        costs[names[id(entry[0])][1]] += spent
                    except KeyError:
                        add_to(costs, self.name_of(entry[0]), spent)
                except Exception as error:  # noqa: BLE001 - ours must not become the training's
                    st.fail("monai", error)
        finally:  # a handler may raise
            handlers.busy = False
            st.in_optimizer = False
            if st.stage == T_HANDLERS:
                st.stage = T_BETWEEN
            elif st.ident != -1 and st.cur == HANDLERS:
                st.advance()
                st.cur = BETWEEN
