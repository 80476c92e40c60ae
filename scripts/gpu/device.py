"""The device that is measured: a CUDA one, or one that only pretends, in the time of the host's clock.

The pretended one returns at once and finishes later, as a real stream does, so all of TraceML but the calls
of CUDA themselves runs on it.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from traceml_ai.probe import session
from traceml_ai.probe.device import TorchEvents


class Cuda:
    """The current CUDA device."""

    where = "cuda"
    scale = 1.0

    def __init__(self) -> None:
        torch.cuda.init()
        self.name = torch.cuda.get_device_name()
        self._per_ms = 1_000_000
        for _ in range(3):  # the clock of an idle device rises first
            begin = self.mark()
            torch.cuda._sleep(50 * self._per_ms)
            end = self.mark()
            self.finish()
            self._per_ms = round(50 * self._per_ms / self.elapsed_ms(begin, end))

    def sleep(self, ms: float) -> None:
        """Queue a kernel that does nothing for so long."""
        torch.cuda._sleep(round(ms * self._per_ms))

    def mark(self) -> Any:
        """Record an event of the check's own."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def elapsed_ms(self, begin: Any, end: Any) -> float:
        return float(begin.elapsed_time(end))

    def finish(self) -> None:
        torch.cuda.synchronize()

    def pinned(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.pin_memory()


class _Event:
    """What `torch.cuda.Event` is, on the pretended stream."""

    stream: Pretended

    def __init__(self) -> None:
        self._at = 0

    def record(self) -> None:
        self._at = max(time.perf_counter_ns(), self.stream.done_ns)

    def query(self) -> bool:
        return self._at <= time.perf_counter_ns()

    def elapsed_time(self, end: _Event) -> float:
        if not end.query():
            raise RuntimeError("asked for before it had passed: that would have waited")
        return (end._at - self._at) / 1e6


class Pretended:
    """A device that is not there. Make it before the probe attaches: copies are pretended too."""

    where = "cpu"
    name = "pretended"
    scale = 0.25  # nothing but its clock takes time
    bytes_per_ms = 20_000_000

    def __init__(self) -> None:
        self.done_ns = 0
        _Event.stream = self
        session.accelerator_events = lambda _torch: TorchEvents(_Event)
        inner = torch.Tensor.to

        def to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
            if args[:1] != ("cuda",):
                return inner(tensor, *args, **kwargs)
            self.sleep(tensor.nbytes / self.bytes_per_ms)
            return tensor

        torch.Tensor.to = to  # type: ignore[method-assign,assignment]

    def sleep(self, ms: float) -> None:
        self.done_ns = max(self.done_ns, time.perf_counter_ns()) + round(ms * 1e6)

    def mark(self) -> Any:
        event = _Event()
        event.record()
        return event

    def elapsed_ms(self, begin: Any, end: Any) -> float:
        return float(begin.elapsed_time(end))

    def finish(self) -> None:
        while time.perf_counter_ns() < self.done_ns:
            time.sleep(0.0005)

    def pinned(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor


def open_device(*, fake: bool) -> Cuda | Pretended:
    return Pretended() if fake else Cuda()
