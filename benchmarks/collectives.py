"""What finding the end of a rank's own gradients adds to a backward, in jobs of several ranks only.

    python benchmarks/collectives.py [--rounds N] [--json]

The same backward of a small model in one process, by turns as torch has it and as the probe wraps it.
Target: 25 us.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from _thread import get_ident
from time import perf_counter_ns

import torch

from traceml_ai.probe.comm import Standing, timed_engine
from traceml_ai.probe.state import StepState

MOST_US = 25.0


def added_us(rounds: int) -> tuple[float, float]:
    """Return the median of a plain backward and of what the probe adds to it."""
    torch.set_num_threads(1)
    state = StepState(ident=get_ident(), open_log=lambda: None, grad_enabled=torch.is_grad_enabled)
    plain = torch.autograd._engine_run_backward  # noqa: SLF001
    queue = torch.autograd.Variable._execution_engine.queue_callback  # noqa: SLF001
    wrapped = timed_engine(Standing(state), plain, queue, get_ident)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    x = torch.randn(8, 64)
    took: dict[bool, list[int]] = {False: [], True: []}
    for _ in range(rounds):
        for ours in (False, True):
            torch.autograd._engine_run_backward = wrapped if ours else plain  # noqa: SLF001
            loss = model(x).sum()
            begin = perf_counter_ns()
            loss.backward()
            took[ours].append(perf_counter_ns() - begin)
    torch.autograd._engine_run_backward = plain  # noqa: SLF001
    base = statistics.median(took[False])
    return base / 1e3, (statistics.median(took[True]) - base) / 1e3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    base, added = added_us(args.rounds)
    row = {"backward_us": round(base, 1), "added_us": round(added, 1)}
    print(json.dumps(row) if args.json else f"a backward of {base:.1f} us takes {added:.1f} us more")
    return 0 if added <= MOST_US else 1


if __name__ == "__main__":
    sys.exit(main())
