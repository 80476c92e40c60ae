"""What measuring asks of the process and of torch once, before or after the loop."""

from __future__ import annotations

import os
from _thread import get_ident
from time import perf_counter_ns
from typing import Any

from traceml_ai.probe import patches as timed
from traceml_ai.probe.columns import FORWARDED
from traceml_ai.probe.state import StepState
from traceml_ai.spool.writer import StepLogWriter

_CALIBRATION_CALLS = 15
_CACHE_BYTES = 2 << 20


def calibrate(torch: Any) -> int:
    """What one timed call costs its caller outside the time it books, in nanoseconds.

    Measured on a backward that does nothing, in the state in which most calls are made.
    """

    def nothing() -> None:
        return None

    st = StepState(ident=get_ident(), open_log=_no_log, grad_enabled=torch.is_grad_enabled)
    wrapped = timed.timed_backward(st, nothing, get_ident, torch.compiler.is_dynamo_compiling)
    costs = []
    cold, other = bytearray(_CACHE_BYTES), bytes(_CACHE_BYTES)
    for _ in range(_CALIBRATION_CALLS):
        # In a training loop the caches are cold between two of our calls.
        cold[:] = other
        begin = perf_counter_ns()
        nothing()
        middle = perf_counter_ns()
        cold[:] = other
        st.stage = FORWARDED
        start = perf_counter_ns()
        wrapped()
        end = perf_counter_ns()
        costs.append((end - start) - (middle - begin))
    return max(0, sorted(costs)[len(costs) // 2])


def _no_log() -> StepLogWriter:
    raise RuntimeError("a calibration closes no step")


def ranks(torch: Any) -> tuple[int, int, int]:
    """Rank, local rank and world size: of the process group once it is up, else the launcher's."""

    def number(name: str) -> int:
        value = os.environ.get(name, "")
        return int(value) if value.isdigit() else -1

    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), number("LOCAL_RANK"), distributed.get_world_size()
    return number("RANK"), number("LOCAL_RANK"), number("WORLD_SIZE")


def sample_counter(tensor: Any) -> Any:
    """How many samples a batch holds: the length of its first tensor."""

    def samples(data: Any) -> int | None:
        kind = type(data)
        if kind is list or kind is tuple:
            data = data[0] if data else None
        elif kind is dict:
            data = next(iter(data.values()), None)
        if type(data) is tensor and data.dim():
            return len(data)
        return None

    return samples
