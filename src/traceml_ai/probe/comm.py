"""What a rank waits for the other ranks: blocked time in collectives, and when it arrived there.

A collective makes every rank of a synchronous job equally slow, so the durations of forward and
backward can't tell who is late. What can: how long each rank *stood* at the collective. The last to
arrive stands there only for the transfer, everyone else for the transfer and the last one's delay.

Three places are timed, in a process group of more than one rank and from the second step on:

* ``Work.wait``: every collective that is called from Python (FSDP's all-gathers and
  reduce-scatters, hand-written reductions, barriers).
* The end of a backward. ``DistributedDataParallel`` reduces gradients inside the autograd engine and
  waits for them in a callback that the engine runs last. A callback of ours, queued when the
  backward begins, runs right before it: there this rank's own gradients are complete.
* ``DistributedDataParallel._sync_buffers``: the broadcast of buffers before a forward.

With an accelerator collectives run beside the host, which hardly stands there at all: nothing is timed.

No collective of ours, no communication hook (a job can have only one, and it would change how
gradients are scaled), nothing on a parameter or a module.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

from traceml_ai.probe.columns import (
    BACKWARD,
    FORWARD,
    IDLE,
    IN_BACKWARD,
    IN_FETCH,
    IN_FORWARD,
    IN_OPTIMIZER,
    INPUT,
    OPENED,
    OPTIMIZER,
    T_BACKWARD,
    T_BETWEEN,
    T_FETCH,
    T_FETCHED,
    T_HANDLERS,
    T_INFERRING,
    T_OPTIMIZER,
    T_UPDATED,
)
from traceml_ai.probe.patches import Wrapped
from traceml_ai.probe.replaced import Patches
from traceml_ai.probe.state import StepState
from traceml_ai.schema.step import COMM_PLACES, INDEX, pack_comm_split

COMM = INDEX["comm_ns"]
ARRIVAL = INDEX["arrival_ns"]
SPLIT = INDEX["comm_split"]

_PLACE = {name: number for number, name in enumerate(COMM_PLACES)}
_OF_STAGE = {
    IN_FETCH: _PLACE["input_wait"],
    IN_FORWARD: _PLACE["forward"],
    IN_BACKWARD: _PLACE["backward"],
    IN_OPTIMIZER: _PLACE["optimizer"],
    T_HANDLERS: _PLACE["between_steps"],
    T_BETWEEN: _PLACE["between_steps"],
    T_FETCH: _PLACE["input_wait"],
    T_FETCHED: _PLACE["between_steps"],
    T_INFERRING: _PLACE["forward"],
    T_BACKWARD: _PLACE["backward"],
    T_OPTIMIZER: _PLACE["optimizer"],
    T_UPDATED: _PLACE["optimizer"],
}
_OF_COLUMN = {
    INPUT: _PLACE["input_wait"],
    FORWARD: _PLACE["forward"],
    BACKWARD: _PLACE["backward"],
    OPTIMIZER: _PLACE["optimizer"],
}


class Standing:
    """Blocked time since the last record, by the phase it fell into.

    Args:
        st: The step state: whose thread, which phase.
    """

    __slots__ = (
        "arrival",
        "by_place",
        "complete_at",
        "in_engine",
        "inside",
        "st",
        "total",
        "total_at_complete",
    )

    def __init__(self, st: StepState) -> None:
        self.st = st
        self.by_place = [0] * len(COMM_PLACES)
        self.total = 0
        self.arrival = 0
        self.inside = False  # in a call that is timed already
        self.in_engine = False
        self.complete_at = 0  # when the running backward had its own gradients
        self.total_at_complete = 0

    def add(self, begin: int, end: int) -> None:
        """Book one wait."""
        self.by_place[self.place()] += end - begin
        self.total += end - begin
        self.arrival = self.arrival or begin

    def place(self) -> int:
        """The phase the training thread is in."""
        st = self.st
        if st.stage > IDLE:
            inside = st.stage >= OPENED
            return _OF_STAGE.get(st.stage, _PLACE["residual"] if inside else _PLACE["between_steps"])
        return _OF_COLUMN.get(st.cur, _PLACE["residual"] if st.window else _PLACE["between_steps"])

    def take(self) -> tuple[int, int, list[int]]:
        """Blocked time, first arrival and time by place since the last call."""
        taken = (self.total, self.arrival, self.by_place)
        self.total = self.arrival = 0
        self.by_place = [0] * len(COMM_PLACES)
        return taken

    def complete(self) -> None:
        """The engine has run every node: what is left of this backward is waiting."""
        self.total_at_complete = self.total
        self.complete_at = self.st.clock()

    def end_of_backward(self, now: int) -> None:
        """Book what was left; waits inside the engine's last callbacks (FSDP's) were booked already."""
        booked = self.total - self.total_at_complete
        self.add(self.complete_at, max(self.complete_at, now - booked))


class CommLog:
    """The step log with the columns about collectives added to each record.

    Args:
        log: The log; records are stored there first, so that nothing here can lose one.
        standing: Where the waits are booked.
    """

    def __init__(self, log: Any, standing: Standing) -> None:
        self._log = log
        self._standing = standing
        self._last: tuple[int, int, list[int]] = (0, 0, [0] * len(COMM_PLACES))

    def append(self, values: Sequence[int]) -> None:
        """Add a record."""
        count = self._log.count
        self._log.append(values)
        self._last = self._standing.take()
        if self._log.count > count:  # else there was no room for the record
            self._store()

    def amend(self, values: list[int]) -> None:
        """Replace the newest record, keeping what it waited."""
        self._log.amend(values)
        total, arrival, by_place = self._standing.take()
        known, first, places = self._last
        merged = [a + b for a, b in zip(places, by_place, strict=True)]
        self._last = (known + total, first or arrival, merged)
        self._store()

    def newest(self) -> list[int]:
        """The newest record, without what `amend` adds again."""
        record: list[int] = self._log.newest()
        record[COMM] = record[ARRIVAL] = record[SPLIT] = 0
        return record

    def place(self) -> tuple[None, int, int]:
        """No record is written past us."""
        return None, 0, 0

    def _store(self) -> None:
        total, arrival, by_place = self._last
        if total:
            split = pack_comm_split(by_place, total)
            self._log.patch(self._log.count - 1, {COMM: total, ARRIVAL: arrival, SPLIT: split})


class CommProbe:
    """The timed collectives of one process.

    Args:
        torch: The imported torch module.
        st: The step state.
        patches: Where replaced calls are remembered.
        get_ident: ``threading.get_ident``.
    """

    def __init__(self, torch: Any, st: StepState, patches: Patches, get_ident: Callable[[], int]) -> None:
        self._st = st
        self._standing = Standing(st)
        self._install(torch, patches, get_ident)
        self.attach_log()

    def _install(self, torch: Any, patches: Patches, get_ident: Callable[[], int]) -> None:
        standing = self._standing
        work = torch.distributed.Work
        patches.set(work, "wait", timed_wait(standing, work.wait, get_ident))
        parallel = torch.nn.parallel.DistributedDataParallel
        patches.set(parallel, "_sync_buffers", timed_wait(standing, parallel._sync_buffers, get_ident))  # noqa: SLF001
        queue = torch.autograd.Variable._execution_engine.queue_callback  # noqa: SLF001
        run = torch.autograd._engine_run_backward  # noqa: SLF001
        patches.set(torch.autograd, "_engine_run_backward", timed_engine(standing, run, queue, get_ident))

    def attach_log(self) -> None:
        """Add our columns to the records of the log that is open."""
        st = self._st
        if st.log is None or isinstance(st.log, CommLog):
            return
        self._standing.take()  # what lies before the first record we complete
        st.log = log = CommLog(st.log, self._standing)
        st.append = log.append


def is_distributed(torch: Any) -> bool:
    """Whether this process is one of several ranks. Never before the process group is up."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return False
    return bool(distributed.get_world_size() > 1)


def timed_wait(standing: Standing, inner: Wrapped, get_ident: Callable[[], int]) -> Wrapped:
    """Time a call that returns when the other ranks have arrived too."""
    st = standing.st

    @functools.wraps(inner)
    def wait(*args: Any, **kwargs: Any) -> Any:
        if get_ident() != st.ident or standing.inside:
            return inner(*args, **kwargs)
        standing.inside = True
        begin = st.clock()
        try:
            return inner(*args, **kwargs)
        finally:
            standing.inside = False
            _book(standing, begin)

    return wait


def _book(standing: Standing, begin: int) -> None:
    try:
        standing.add(begin, standing.st.clock())
    except Exception as error:  # noqa: BLE001 - ours must not become the user's
        standing.st.fail("collectives", error)


def timed_engine(
    standing: Standing,
    inner: Wrapped,
    queue_callback: Callable[[Callable[[], None]], None],
    get_ident: Callable[[], int],
) -> Wrapped:
    """Find in each outermost backward the moment when this rank's own gradients were complete.

    Args:
        standing: Where to book what comes after it.
        inner: ``torch.autograd._engine_run_backward``.
        queue_callback: The engine's; only allowed while a backward runs.
        get_ident: ``threading.get_ident``.
    """
    st = standing.st

    def begins(*_grads: Any) -> None:
        try:
            queue_callback(standing.complete)
        except Exception as error:  # noqa: BLE001
            st.fail("collectives", error)

    @functools.wraps(inner)
    def _engine_run_backward(outputs: Any, *args: Any, **kwargs: Any) -> Any:
        if get_ident() != st.ident or standing.in_engine or _is_compiled():
            return inner(outputs, *args, **kwargs)
        handle = _before_first_node(outputs, begins)
        standing.in_engine = True
        standing.complete_at = 0
        try:
            return inner(outputs, *args, **kwargs)
        finally:
            standing.in_engine = False
            if handle is not None:
                handle.remove()
            if standing.complete_at:
                _book_end(standing)

    return _engine_run_backward


def _is_compiled() -> bool:
    """Whether backwards are compiled: hooks would become part of what is compiled."""
    compiler = sys.modules.get("torch._dynamo.compiled_autograd")
    return bool(getattr(compiler, "compiled_autograd_enabled", False))


def _before_first_node(outputs: Any, call: Callable[..., None]) -> Any:
    """Call us when the engine begins; the hook is on a node of the graph, and gone after this backward."""
    try:
        node = outputs[0].grad_fn
        return None if node is None else node.register_prehook(call)
    except Exception:  # noqa: BLE001 - not measured then
        return None


def _book_end(standing: Standing) -> None:
    try:
        standing.end_of_backward(standing.st.clock())
    except Exception as error:  # noqa: BLE001
        standing.st.fail("collectives", error)
