"""What measuring adds to a step: TraceML, other tools and none, in turn, for steps of 0.5 to 100 ms.

    python benchmarks/cost.py [--rounds N] [--only LOOP] [--missing] [--public TRACEML] [--write]

A round starts a fresh process for each tool with the same loop; a process's figure is its median step.
Added is the median over rounds of a tool's figure minus that of no tool in the same round, with the
smallest and the largest beside it. In a step of ten or a hundred milliseconds the difference of two
processes is more than any tool adds: the range says so.

``--public``: the ``traceml`` command of an environment in which the public tracer is installed
(``pip install torch traceml-ai==0.5.0``); it measures no plain loop whose code is unchanged, so the same
loop, marked for it, is what is compared. Results are kept in ``.evidence/cost.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import _evidence
import torch

LOOPS = Path(__file__).parent / "_cost"
KEPT = Path(__file__).parent.parent / ".evidence" / "cost.json"
SIZES_MS = (0.5, 1.0, 10.0, 100.0)
TOOLS = {
    "plain": ("none", "traceml", "torch.profiler"),
    "lightning": ("none", "traceml", "simple"),
    "monai": ("none", "traceml"),
    "ddp": ("none", "traceml"),
}
NAMES = {"traceml": "TraceML", "simple": "Lightning's simple profiler", "public": "the public tracer 0.5.0"}
BASE_MS = {"plain": 0.4, "lightning": 0.8, "monai": 0.5, "ddp": 0.7}  # without ballast, about
SECONDS = 1.5
TRACEML = ["-m", "traceml_ai", "run", "--mode", "summary", "--logs-dir"]

Figures = dict[str, dict[str, list[float]]]


def ballast_for(loop: str, size_ms: float) -> int:
    """How many matrix products make a step of this length."""
    torch.set_num_threads(1)
    weight = torch.full((128, 128), 1e-3)
    spans = []
    for _ in range(200):
        begin = perf_counter()
        weight @ weight
        spans.append(perf_counter() - begin)
    return max(0, round((size_ms - BASE_MS[loop]) / (statistics.median(spans) * 1e3)))


def command(loop: str, tool: str, args: list[str], logs: str, public: str | None) -> list[str]:
    """How the loop is started."""
    script = str(LOOPS / f"{loop}.py")
    ranks = ["--nproc-per-node=2"] if loop == "ddp" else []
    if tool == "traceml":
        return [sys.executable, *TRACEML, logs, *ranks, script, "--args", *args]
    if tool == "public":
        assert public is not None
        return [public, "run", str(LOOPS / "public.py"), "--mode", "summary", "--args", *args]
    if ranks:
        return [sys.executable, "-m", "torch.distributed.run", "--standalone", *ranks, script, *args]
    return [sys.executable, script, *args, tool]


def step_us(loop: str, tool: str, size_ms: float, ballast: int, public: str | None) -> float:
    """Run the loop once; microseconds of its median step."""
    steps = max(40, round(SECONDS * 1e3 / size_ms))
    with tempfile.TemporaryDirectory() as folder:
        line = command(loop, tool, [str(steps), str(ballast)], folder, public)
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        ended = subprocess.run(line, cwd=folder, env=env, capture_output=True, text=True, check=False)
    found = [float(line.split()[1]) for line in ended.stdout.splitlines() if line.startswith("US ")]
    if ended.returncode or not found:
        raise SystemExit(f"{' '.join(line)} failed:\n{ended.stderr[-2000:]}")
    return found[0]


def tools_of(loop: str, public: str | None) -> tuple[str, ...]:
    """What is compared on a loop."""
    return (*TOOLS[loop], "public") if public and loop == "plain" else TOOLS[loop]


def measure(loop: str, size_ms: float, rounds: int, public: str | None) -> dict[str, list[float]]:
    """Step times by tool, a figure a round."""
    ballast = ballast_for(loop, size_ms)
    times: dict[str, list[float]] = {tool: [] for tool in tools_of(loop, public)}
    for _ in range(rounds):
        for tool, figures in times.items():
            figures.append(step_us(loop, tool, size_ms, ballast, public))
    return times


def row(key: str, times: dict[str, list[float]]) -> list[list[str]]:
    """A loop's lines of the table: one for each tool."""
    loop, size = key.split()
    none = times["none"]
    rows = []
    for tool, figures in times.items():
        if tool == "none":
            continue
        added = sorted(b - a for a, b in zip(none, figures, strict=True))
        middle = statistics.median(added)
        rows.append(
            [
                loop,
                f"{statistics.median(none) / 1e3:.2f} ms (aimed at {size})",
                NAMES.get(tool, tool),
                f"{middle:+.0f} µs",
                f"{added[0]:+.0f} to {added[-1]:+.0f} µs",
                f"{100 * middle / statistics.median(none):+.1f} %",
            ]
        )
    return rows


def text(kept: Figures) -> str:
    """The table."""
    rounds = max((len(times["none"]) for times in kept.values()), default=0)
    rows = [line for key, times in kept.items() for line in row(key, times)]
    head = ["Loop", "Step without a tool", "Tool", "Added to a step", "Over rounds", "Share"]
    return f"{_evidence.machine('lightning', 'monai')} {rounds} rounds.\n\n{_evidence.table(head, rows)}"


def main() -> None:
    """Measure, print the table, and write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=tuple(TOOLS), action="append")
    parser.add_argument("--missing", action="store_true", help="measure only what has no result yet")
    parser.add_argument("--public", metavar="TRACEML", help="the public tracer's command")
    parser.add_argument("--write", action="store_true", help="write the table into docs/evidence/cost.md")
    options = parser.parse_args()
    kept: Figures = (
        json.loads(KEPT.read_text()) if KEPT.exists() and (options.missing or options.only) else {}
    )
    KEPT.parent.mkdir(exist_ok=True)
    for loop in options.only or TOOLS:
        for size_ms in SIZES_MS:
            key = f"{loop} {size_ms:g}ms"
            if options.missing and key in kept:
                continue
            kept[key] = measure(loop, size_ms, options.rounds, options.public)
            KEPT.write_text(json.dumps(kept))
            print("\n".join("  ".join(line) for line in row(key, kept[key])), flush=True)
    if options.write:
        _evidence.write("cost", "cost", text(kept))


if __name__ == "__main__":
    main()
