"""Checks from inside a training process: device times, waiting, events, copies, memory, graphs.

python inside.py (real|fake)        prints the rows as JSON
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from device import Cuda, open_device
from loop import Device, Loop

from traceml_ai.probe import session
from traceml_ai.probe.device import MAX_PENDING
from traceml_ai.schema.step import INDEX, Observed
from traceml_ai.spool.reader import open_spool

Row = tuple[str, str, str, bool | None]  # what, measured, target, met
WITHIN = 0.05
AHEAD = 0.25
"""Of the device's time, what the host may take to give out its work."""
LEAST_TIMED = 30
"""Of forty steps: the first has no device clock yet, the newest may still be on its way."""
EVENTS_A_STEP = 10
_NO_BATCH = None


class Measured:
    """A traced process: what is trained in it, and the records of it."""

    def __init__(self, device: Device, spool: str) -> None:
        self.device = device
        self.spool = Path(spool)
        self.session = session.attach(torch, spool)
        self.read = 0

    def records(self) -> Any:
        """Return the records since the last call; all steps must be over."""
        self.device.finish()
        timer = self.session.st.device
        if timer is not None:
            timer.finish()
        (reader,) = open_spool(self.spool)
        block = reader.read_rest()
        fresh, self.read = block[self.read :], len(block)
        return fresh


def phases(measured: Measured) -> list[Row]:
    """Device times of the phases, against events around kernels of a known length."""
    loop = Loop(measured.device, 6.0, 12.0, 3.0)
    batch = measured.device.pinned(torch.zeros(32 << 20, dtype=torch.uint8))
    for _ in range(2):
        loop.run([batch] * 20)
        loop.device.finish()
    block = measured.records()
    block = block[(block[:, INDEX["observed"]] & int(Observed.DEVICE)) > 0][2:]
    enough = ("steps with device times", str(len(block)), f">= {LEAST_TIMED}", len(block) >= LEAST_TIMED)
    names = {"h2d": "h2d, pinned"}
    return [enough, *(_close(phase, block, loop, names.get(phase)) for phase in loop.spans)]


def pageable(measured: Measured) -> list[Row]:
    """A copy from memory that is not pinned."""
    loop = Loop(measured.device, 0.5, 0.5, 0.5)
    loop.run([torch.zeros(32 << 20, dtype=torch.uint8)] * 20)
    block = measured.records()
    return [
        _close(
            "h2d", block[(block[:, INDEX["observed"]] & int(Observed.DEVICE)) > 0], loop, "h2d, not pinned"
        )
    ]


def _close(phase: str, block: Any, loop: Loop, name: str | None = None) -> Row:
    ours = statistics.median(block[:, INDEX[f"dev_{phase}_ns"]].tolist() or [0]) / 1e6
    own = statistics.median(loop.ms(phase))
    off = abs(ours - own) / own
    text = f"{ours:.3f} ms, its own events {own:.3f} ms ({off:.1%})"
    return (f"device time of {name or phase}", text, f"within {WITHIN:.0%}", off <= WITHIN)


def no_waiting(measured: Measured) -> list[Row]:
    """The host runs ahead of a slow device, and as many calls wait for it as without us."""
    loop = Loop(measured.device, 40.0, 40.0, 1.0)
    steps = MAX_PENDING // 2
    loop.device.finish()
    begin = time.perf_counter()
    loop.run([_NO_BATCH] * steps)
    host_s = time.perf_counter() - begin
    loop.device.finish()
    all_s = time.perf_counter() - begin
    measured.records()
    share = host_s / all_s
    return [
        (
            "host time of steps on a slow device",
            f"{share:.0%} of the device's",
            f"<= {AHEAD:.0%}",
            share <= AHEAD,
        ),
        _calls_that_wait(measured),
        _no_sync_in_debug_mode(measured),
    ]


def _calls_that_wait(measured: Measured) -> Row:
    name, target = "calls that wait for the device", "as many as untraced"
    if not isinstance(measured.device, Cuda):
        return (name, "needs CUDA", target, None)
    loop = Loop(measured.device, 0.2, 0.2, 0.2)
    traced = _waits(loop)
    ident, measured.session.st.ident = measured.session.st.ident, -1  # every wrapper passes through
    untraced = _waits(loop)
    measured.session.st.ident = ident
    return (name, f"{traced} traced, {untraced} untraced", target, traced == untraced)


def _waits(loop: Loop) -> int:
    from torch.profiler import ProfilerActivity, profile

    loop.device.finish()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiler:
        loop.run([_NO_BATCH] * 20)
    return sum("Synchronize" in event.name for event in profiler.events())


def _no_sync_in_debug_mode(measured: Measured) -> Row:
    name, target = "steps with torch's sync debug mode on error", "none raises"
    if not isinstance(measured.device, Cuda):
        return (name, "needs CUDA", target, None)
    loop = Loop(measured.device, 0.2, 0.2, 0.2)
    torch.cuda.set_sync_debug_mode("error")
    try:
        loop.run([_NO_BATCH] * 20)
        said = "none raises"
    except RuntimeError as error:
        said = str(error).splitlines()[0]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    still = measured.session.st.ident != -1
    return (name, said if still else "measuring stopped", target, still and said == target)


def event_pool(measured: Measured) -> list[Row]:
    """A device that is hopelessly behind costs a bounded number of events."""
    timer = measured.session.st.device
    assert timer is not None
    before, steps = timer.dropped, 2 * MAX_PENDING
    loop = Loop(measured.device, 16.0, 16.0, 1.0)
    loop.run([_NO_BATCH] * steps)
    pending, dropped = len(timer._pending), timer.dropped - before
    measured.records()
    events = len(timer._events._pool)  # type: ignore[attr-defined]
    bound = (MAX_PENDING + 2) * EVENTS_A_STEP
    return [
        (
            "steps that wait to be read back",
            f"{pending}, {dropped} given up",
            f"<= {MAX_PENDING}",
            pending <= MAX_PENDING,
        ),
        ("events in all", str(events), f"<= {bound}", 0 < events <= bound),
    ]


def memory(measured: Measured) -> list[Row]:
    """Memory at the end of a step, and the program's own peak, which stays its own."""
    name = "memory at the end of a step"
    if not isinstance(measured.device, Cuda):
        return [(name, "needs CUDA", "as torch says", None)]
    loop, held, said = Loop(measured.device, 0.2, 0.2, 0.2), [], []
    torch.cuda.reset_peak_memory_stats()
    passing = torch.empty(512 << 20, dtype=torch.uint8, device="cuda")
    del passing
    for _ in range(32):
        held.append(torch.empty(8 << 20, dtype=torch.uint8, device="cuda"))
        loop.run([_NO_BATCH])
        said.append(torch.cuda.memory_allocated())
        measured.device.finish()
    block = measured.records()
    seen = (block[:, INDEX["observed"]] & int(Observed.MEMORY)) > 0
    ours = block[seen, INDEX["peak_allocated_bytes"]].tolist()
    true = [bytes_ for bytes_, is_seen in zip(said, seen.tolist(), strict=False) if is_seen]
    off = max((abs(a - b) / b for a, b in zip(ours, true, strict=True)), default=1.0)
    peak = torch.cuda.max_memory_allocated()
    return [
        (name, f"{len(ours)} of {len(block)} steps, off by {off:.1%} at most", "within 5%", off <= WITHIN),
        ("the program's own peak", f"{peak >> 20} MiB", ">= 512 MiB", peak >= 512 << 20),
    ]


def graphs(measured: Measured) -> list[Row]:
    """A step that is captured into a graph, and one that is compiled."""
    if not isinstance(measured.device, Cuda):
        return [("CUDA graphs, torch.compile", "needs CUDA", "as untraced", None)]
    ident = measured.session.st.ident
    found = []
    for name, train in (("a captured step", _captured), ("a compiled model", _compiled)):
        traced = _outcome(train)
        measured.session.st.ident = -1
        untraced = _outcome(train)
        measured.session.st.ident = ident
        found.append((name, f"{traced}, untraced {untraced}", "as untraced", traced == untraced))
    still = measured.session.st.ident != -1 and not measured.session.facts.values["warnings"]
    found.append(("measuring after that", "goes on" if still else "stopped", "goes on", still))
    return found


def _outcome(train: Callable[[], float]) -> str:
    try:
        return f"loss {train()!r}"
    except RuntimeError as error:
        return str(error).splitlines()[0][:60]


def _tiny() -> tuple[torch.nn.Module, torch.optim.Optimizer, torch.Tensor]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).cuda()
    return model, torch.optim.SGD(model.parameters(), lr=0.01), torch.ones(4, 8, device="cuda")


def _captured() -> float:
    model, optimizer, x = _tiny()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            model(x).sum().backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
    for _ in range(10):
        graph.replay()
    return float(loss)


def _compiled() -> float:
    model, optimizer, x = _tiny()
    compiled = torch.compile(model, mode="reduce-overhead")
    for _ in range(10):
        optimizer.zero_grad(set_to_none=True)
        loss = compiled(x).sum()
        loss.backward()
        optimizer.step()
    return float(loss)


CHECKS = (phases, pageable, no_waiting, event_pool, memory, graphs)


def main() -> None:
    torch.set_num_threads(1)
    device = open_device(fake=sys.argv[1] == "fake")
    with tempfile.TemporaryDirectory() as spool:
        measured = Measured(device, spool)
        rows = [row for check in CHECKS for row in check(measured)]
    print(json.dumps({"device": device.name, "rows": rows}))


if __name__ == "__main__":
    main()
