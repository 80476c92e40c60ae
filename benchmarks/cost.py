"""What measuring adds to a step: TraceML, other tools and none, for steps of 0.5 to 100 ms.

    python benchmarks/cost.py [--rounds N] [--only LOOP] [--missing] [--public BIN] [--write]

Loops take turns as in ``_lockstep.py``. "No tool, once more" says what the figures beside it are worth: in a
step of a hundred milliseconds two processes that do the same differ by more than any tool adds.

``--public``: the ``bin`` folder of an environment in which the public tracer is installed (``pip install
torch traceml-ai==0.5.0``). It measures no plain loop whose code is unchanged, so the same loop, marked for
it, runs there in turn with the untraced one, in fresh processes. Results are kept in docs/evidence/results.
"""

from __future__ import annotations

# A file beside this one is called like what is imported.
import sys

sys.path.append(sys.path.pop(0))

import argparse
import os
import statistics
import subprocess
import tempfile
from pathlib import Path
from time import perf_counter

import _evidence
import _lockstep
import torch
from _cost import loops

SCRIPTS = Path(__file__).parent / "_cost"
SIZES_MS = (0.5, 1.0, 10.0, 100.0)
BASE_MS = {"plain": 0.3, "Lightning": 0.8, "MONAI": 0.5, "DDP": 0.6}  # without ballast, about
BLOCKS, BLOCK_MS, MOST_STEPS = 10, 150, 200
PUBLIC = "the public tracer 0.5.0"
PUBLIC_SECONDS, PUBLIC_ROUNDS = 1.5, 5

Rows = list[list[str]]


def ballast_for(loop: str, size_ms: float) -> int:
    """How many matrix products make a step of this length."""
    weight = torch.full((128, 128), 1e-3)
    spans = []
    for _ in range(200):
        begin = perf_counter()
        weight @ weight
        spans.append(perf_counter() - begin)
    return max(0, round((size_ms - BASE_MS[loop]) / (statistics.median(spans) * 1e3)))


def measure(loop: str, size_ms: float, rounds: int) -> Rows:
    """The lines of the table for one loop and length."""
    made = loops.ALL[loop](ballast_for(loop, size_ms))
    steps = max(4, min(MOST_STEPS, round(BLOCK_MS / size_ms)))
    found = _lockstep.measure(made, rounds, BLOCKS, steps)
    return [cells(loop, size_ms, row) for row in found]


def cells(loop: str, size_ms: float, row: _lockstep.Row) -> list[str]:
    """A line of the table."""
    step = f"{row.base / 1e3:.2f} ms (aimed at {size_ms:g})"
    share = f"{100 * row.added / row.base:+.2f} %"
    return [loop, step, row.kind, f"{row.added:+.0f} µs", f"[{row.low:+.0f}, {row.high:+.0f}]", share]


def measure_public(size_ms: float, bin_folder: str) -> Rows:
    """The line of the public tracer."""
    ballast = ballast_for("plain", size_ms)
    steps = max(40, round(PUBLIC_SECONDS * 1e3 / size_ms))
    args = [str(steps), str(ballast)]
    plain = [f"{bin_folder}/python", str(SCRIPTS / "plain.py"), *args]
    public = [
        f"{bin_folder}/traceml",
        "run",
        str(SCRIPTS / "public.py"),
        "--mode",
        "summary",
        "--args",
        *args,
    ]
    times = [(step_us(plain), step_us(public)) for _ in range(PUBLIC_ROUNDS)]
    added = sorted(b - a for a, b in times)
    base = statistics.median(a for a, _ in times)
    row = _lockstep.Row(PUBLIC, base, statistics.median(added), added[0], added[-1], 0.0)
    return [cells("plain", size_ms, row)]


def step_us(line: list[str]) -> float:
    """Run a loop once; microseconds of its median step."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    with tempfile.TemporaryDirectory() as folder:
        ended = subprocess.run(line, cwd=folder, env=env, capture_output=True, text=True, check=False)
    found = [float(each.split()[1]) for each in ended.stdout.splitlines() if each.startswith("US ")]
    if ended.returncode or not found:
        raise SystemExit(f"{' '.join(line)} failed:\n{ended.stderr[-2000:]}")
    return found[0]


def text(kept: dict[str, Rows], rounds: int) -> str:
    """The table."""
    rows = [
        line for loop in loops.ALL for key, lines in kept.items() if key.split()[0] == loop for line in lines
    ]
    head = ["Loop", "Step without a tool", "Tool", "Added to a step", "95 % interval", "Share"]
    return f"{_evidence.machine('lightning', 'monai')} {rounds} rounds.\n\n{_evidence.table(head, rows)}"


def main() -> None:
    """Measure, print the table, and write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--only", choices=tuple(loops.ALL), action="append")
    parser.add_argument("--missing", action="store_true", help="measure only what has no result yet")
    parser.add_argument("--public", metavar="BIN", help="where the public tracer's traceml and python are")
    parser.add_argument("--write", action="store_true", help="write the table into docs/evidence/cost.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    kept: dict[str, Rows] = _evidence.kept("cost") if options.missing or options.only else {}

    def keep(key: str, rows: Rows) -> None:
        kept[key] = rows
        _evidence.keep("cost", kept)
        print("\n".join("  ".join(line) for line in rows), flush=True)

    for loop in options.only or loops.ALL:
        for size_ms in SIZES_MS:
            key = f"{loop} {size_ms:g}ms"
            if not (options.missing and key in kept):
                keep(key, measure(loop, size_ms, options.rounds))
            if loop == "plain" and options.public and not (options.missing and f"{key} public" in kept):
                keep(f"{key} public", measure_public(size_ms, options.public))
    if options.write:
        _evidence.write("cost", "cost", text(kept, options.rounds))


if __name__ == "__main__":
    main()
