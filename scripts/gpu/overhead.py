"""What measuring adds to a step on the device: a traced and an untraced process, block by block in turn.

python overhead.py (real|fake) [BLOCKS]         prints the rows as JSON
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import torch
from device import open_device

from traceml_ai.probe import session

STEPS, BLOCKS, WARM = 100, 30, 3
MOST_US = 60.0


def make_block(where: str, finish: Callable[[], None]) -> Callable[[], float]:
    """Return what trains a block of steps and says how many microseconds a step took."""
    layers = [torch.nn.Linear(32, 32) for _ in range(4)]
    model = torch.nn.Sequential(*layers).to(where)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    loader = torch.utils.data.DataLoader([torch.zeros(1)] * STEPS, batch_size=None)
    x = torch.ones(8, 32, device=where)

    def block() -> float:
        begin = time.perf_counter()
        for _ in loader:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
        finish()
        return (time.perf_counter() - begin) / STEPS * 1e6

    return block


def here(kind: str, *, traced: bool) -> None:
    """Train a block for each line of standard input."""
    torch.set_num_threads(1)
    device = open_device(fake=kind == "fake")
    with tempfile.TemporaryDirectory() as spool:
        if traced:
            session.attach(torch, spool)
        block = make_block(device.where, device.finish)
        for _ in sys.stdin:
            print(block(), flush=True)


def main() -> None:
    kind, blocks = sys.argv[1], int([*sys.argv, BLOCKS][2])
    command = [sys.executable, __file__, kind, "--here"]
    pipe = subprocess.PIPE
    both = [
        subprocess.Popen([*command, which], stdin=pipe, stdout=pipe, text=True, bufsize=1)
        for which in ("untraced", "traced")
    ]
    times: list[list[float]] = [[], []]
    for _ in range(WARM + blocks):
        for process, found in zip(both, times, strict=True):
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("block\n")
            found.append(float(process.stdout.readline()))
    for process in both:
        process.communicate()
    added = statistics.median(b - a for a, b in zip(times[0][WARM:], times[1][WARM:], strict=True))
    step = statistics.median(times[0][WARM:])
    text = f"{added:.1f} us to a step of {step:.0f} us"
    # Events of the pretended device are Python: what they cost says nothing of the real ones.
    met = None if kind == "fake" else added <= MOST_US
    text = "needs CUDA" if kind == "fake" else text
    print(json.dumps({"rows": [("added by measuring", text, f"<= {MOST_US:.0f} us", met)]}))


if __name__ == "__main__":
    if "--here" in sys.argv:
        here(sys.argv[1], traced=sys.argv[-1] == "traced")
    else:
        main()
