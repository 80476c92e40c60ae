"""The device clock: where the accelerator's time of a step goes.

An accelerator works behind the host's back, so host times of calls say little about it. Timing
events are recorded at the boundaries of the phases and read back steps later, when ``query()`` says
that the device has passed them. Nothing here ever waits for the device.

The accelerator itself is behind `Events`, so all of this is tested with one that only pretends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import sleep
from typing import Any, Protocol

from traceml_ai.schema.step import INDEX, Observed

DEVICE_COLUMNS: dict[int, int] = {
    INDEX[f"{phase}_ns"]: INDEX[f"dev_{phase}_ns"] for phase in ("h2d", "forward", "backward", "optimizer")
}
_STEP = INDEX["dev_step_ns"]
_OBSERVED = INDEX["observed"]
_DEVICE_BIT = int(Observed.DEVICE)

_NO_COLUMN = -1

# Steps whose events were not read back yet. A device further behind than this is not waited for.
MAX_PENDING = 64
_LAST_POLLS, _LAST_POLL_S = 20, 0.01


class Events(Protocol):
    """Timing events of one accelerator."""

    def capturing(self) -> bool:
        """Whether the current stream is being captured into a graph.

        An event would become part of it, and asking for one would break the capture.
        """

    def record(self) -> Any:
        """Record an event on the current stream, now."""

    def passed(self, event: Any) -> bool:
        """Whether the device has reached the event; must not block."""

    def elapsed_ns(self, begin: Any, end: Any) -> int:
        """Device time between two passed events."""

    def release(self, event: Any) -> None:
        """The event is not needed any more."""


class TorchEvents:
    """Events of the current ``torch`` accelerator, reused from a pool.

    Args:
        make: Makes an event with timing, such as ``torch.cuda.Event(enable_timing=True)``.
        capturing: Such as ``torch.cuda.is_current_stream_capturing``.
    """

    def __init__(self, make: Callable[[], Any], capturing: Callable[[], bool] = lambda: False) -> None:
        self._make = make
        self.capturing = capturing
        self._pool: list[Any] = []

    def record(self) -> Any:
        """Record a pooled event on the current stream."""
        event = self._pool.pop() if self._pool else self._make()
        event.record()
        return event

    def passed(self, event: Any) -> bool:
        """``event.query()``."""
        return bool(event.query())

    def elapsed_ns(self, begin: Any, end: Any) -> int:
        """``begin.elapsed_time(end)``, which is in milliseconds."""
        milliseconds: float = begin.elapsed_time(end)
        return max(0, round(milliseconds * 1e6))

    def release(self, event: Any) -> None:
        """Put the event back."""
        self._pool.append(event)


class _Step:
    """The events of one step: ``(column, begin, end)`` spans inside the window."""

    __slots__ = ("close", "index", "open", "spans", "void")

    def __init__(self) -> None:
        self.index = -1
        self.void = False  # a part of it was captured: it has no times of its own
        self.open: Any = None
        self.close: Any = None
        self.spans: list[tuple[int, Any, Any]] = []

    def events(self) -> list[Any]:
        """Every event once (neighbouring spans share theirs)."""
        found = [self.open, self.close, *(e for _, b, f in self.spans for e in (b, f))]
        return list({id(e): e for e in found if e is not None}.values())


class DeviceTimer:
    """Follows the phases of the steps on the device clock.

    Args:
        events: The accelerator's events.
        patch: Fills in columns of a record that is in the log, by its running number.
        settle: Declares the first n records final.
    """

    def __init__(
        self,
        events: Events,
        patch: Callable[[int, dict[int, int]], None],
        settle: Callable[[int], None],
    ) -> None:
        self._events = events
        self._patch = patch
        self._settle = settle
        self._now = _Step()
        self._stack: list[tuple[int, Any]] = []
        self._pending: deque[_Step] = deque()
        self._closed = 0
        self.dropped = 0  # steps the device was too far behind for

    def open(self) -> None:
        """The window of a step opens."""
        if self._now.open is None:
            self._now.open = self._record()

    def begin(self, column: int) -> None:
        """A phase begins; the one it is nested in is interrupted."""
        event = self._record()
        if self._stack:
            outer, begun = self._stack[-1]
            self._now.spans.append((outer, begun, event))
        self._stack.append((column, event))

    def end(self) -> None:
        """The innermost phase ends; the one around it goes on."""
        if not self._stack:
            return
        event = self._record()
        column, begun = self._stack.pop()
        self._now.spans.append((column, begun, event))
        if self._stack:
            self._stack[-1] = (self._stack[-1][0], event)

    def close(self, index: int) -> None:
        """The step became record ``index``; also looks which earlier steps can be read back."""
        step = self._take()
        step.index = index
        if step.open is not None and not step.void:
            step.close = self._record(step)
        self._closed = index + 1
        self._pending.append(step)
        if len(self._pending) > MAX_PENDING:
            self._forget(self._pending.popleft())
            self.dropped += 1
        self.poll()

    def merge(self) -> None:
        """What was noted since belongs to the newest record."""
        step = self._take()
        newest = self._pending[-1] if self._pending else None
        if newest is None or newest.index != self._closed - 1 or newest.open is None:
            self._forget(step)
            return
        newest.spans += step.spans
        newest.void = newest.void or step.void
        if step.open is not None:
            self._events.release(step.open)
        if newest.close is not None:
            self._events.release(newest.close)
        newest.close = None if newest.void else self._record(newest)

    def drop(self) -> None:
        """The step under way was aborted."""
        self._forget(self._take())

    def _record(self, step: _Step | None = None) -> Any:
        if self._events.capturing():
            (step or self._now).void = True
            return None
        return self._events.record()

    def _take(self) -> _Step:
        """The step under way, with the events of phases that were never left; a new one begins."""
        step, self._now = self._now, _Step()
        step.spans += [(_NO_COLUMN, event, event) for _, event in self._stack]
        self._stack.clear()
        return step

    def poll(self) -> None:
        """Read back the steps that the device has finished, oldest first; never waits."""
        if self._events.capturing():
            return
        # The newest record may still be amended by a further optimizer.
        while len(self._pending) > 1 and self._read(self._pending[0]):
            self._pending.popleft()
        oldest = self._pending[0].index if self._pending else self._closed
        self._settle(oldest)

    def finish_soon(self) -> None:
        """At exit: give the device a moment for the last steps. Polls, does not synchronise."""
        for _ in range(_LAST_POLLS):
            if self.finish():
                return
            sleep(_LAST_POLL_S)

    def finish(self) -> bool:
        """At exit: read back what is done; True when nothing is left."""
        while self._pending and self._read(self._pending[0]):
            self._pending.popleft()
        self._settle(self._pending[0].index if self._pending else self._closed)
        return not self._pending

    def _read(self, step: _Step) -> bool:
        if step.close is None:
            self._forget(step)
            return True
        if not self._events.passed(step.close):
            return False
        columns = dict.fromkeys(DEVICE_COLUMNS.values(), 0)
        for column, begin, end in step.spans:
            target = DEVICE_COLUMNS.get(column)
            if target is not None:
                columns[target] += self._events.elapsed_ns(begin, end)
        columns[_STEP] = self._events.elapsed_ns(step.open, step.close)
        columns[_OBSERVED] = _DEVICE_BIT
        self._patch(step.index, columns)
        self._forget(step)
        return True

    def _forget(self, step: _Step) -> None:
        for event in step.events():
            self._events.release(event)


def accelerator_events(torch: Any) -> TorchEvents | None:
    """Events of the accelerator this process has already started; None without one.

    Asks nothing that would start one: that is the program's to do, or not to do.
    """
    cuda = torch.cuda
    if cuda.is_available() and cuda.is_initialized():
        return TorchEvents(lambda: cuda.Event(enable_timing=True), cuda.is_current_stream_capturing)
    xpu = getattr(torch, "xpu", None)
    if xpu is not None and xpu.is_available() and xpu.is_initialized():
        return TorchEvents(lambda: xpu.Event(enable_timing=True))
    return None


def memory_reader(torch: Any) -> Callable[[], tuple[int, int]] | None:
    """Reads (allocated, reserved) bytes of the current CUDA device; None without one.

    Nothing is reset: the peak counters are the program's own.
    """
    cuda = torch.cuda
    if not (cuda.is_available() and cuda.is_initialized()):
        return None
    return lambda: (cuda.memory_allocated(), cuda.memory_reserved())
