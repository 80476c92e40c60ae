"""How long `traceml runs` takes on ten thousand runs, read for the first time and from its cache.

    python benchmarks/many_runs.py [--runs N]

Each summary is as large as a real one's, 40 KB or so. What is timed is the whole command, in a process of
its own. Target: 3 s.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from msgspec.structs import replace

from traceml_ai.schema.series import Blocks, Series
from traceml_ai.schema.summary import (
    Finding,
    OverheadSection,
    PhaseStats,
    ProcessSection,
    RunSection,
    StepMemorySection,
    StepTimeSection,
    Summary,
    SystemSection,
    ThroughputSection,
    TimeSection,
    encode,
)
from traceml_ai.spool.runfolder import SUMMARY_FILE

MOST_S = 3.0
PHASES = ("input_wait", "h2d", "forward", "backward", "optimizer", "residual", "between_steps")
POINTS, BLOCKS = 120, 48


def summary() -> Summary:
    """Return a summary with everything of a long run in it."""
    numbers = [12.3456 + i / 1000 for i in range(POINTS)]
    finding = Finding(
        kind="INPUT_BOUND", severity="warning", section="step_time", why="w" * 200, next="n" * 200
    )
    step = StepTimeSection(
        diagnosis="INPUT_BOUND",
        steps=40_000,
        step_ms=12.3,
        phases={name: PhaseStats(mean_ms=2.0, median_ms=2.0, p95_ms=3.0, coverage=1.0) for name in PHASES},
        series=Series(
            first_step=list(range(POINTS)),
            steps=[300] * POINTS,
            mean_ms=list(numbers),
            max_ms=list(numbers),
            phases={name: list(numbers) for name in PHASES},
        ),
        blocks=Blocks(steps_per_block=800, phases=dict.fromkeys(("step", *PHASES), numbers[:BLOCKS])),
    )
    return Summary(
        traceml_version="benchmark",
        run=RunSection(
            name="run", status="completed", command=["python", "train.py", "--lr", "0.1"], batch_size=8
        ),
        diagnosis=finding,
        findings=[finding] * 3,
        step_time=step,
        step_memory=StepMemorySection(diagnosis="NO_DATA"),
        time=TimeSection(),
        throughput=ThroughputSection(samples_per_sec=650.0),
        system=SystemSection(diagnosis="NORMAL", hostname="node"),
        process=ProcessSection(diagnosis="NORMAL"),
        overhead=OverheadSection(),
        warnings=["w" * 100] * 5,
    )


def write(logs: Path, runs: int) -> float:
    """Write the run folders; return the size of a summary in KB."""
    whole = summary()
    size = 0
    for i in range(runs):
        at = f"2030-01-{1 + i // 1000:02}T{i % 1000 // 60:02}:{i % 60:02}:00+00:00"
        step = replace(whole.step_time, step_ms=12 + i % 7 / 100)
        data = encode(replace(whole, run=replace(whole.run, name=f"run{i}", started_at=at), step_time=step))
        folder = logs / f"run{i}"
        folder.mkdir()
        (folder / SUMMARY_FILE).write_bytes(data)
        size = len(data)
    return size / 1024


def timed(*words: str) -> float:
    """Return how long a command takes, in seconds."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-m", "traceml_ai", *words], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def main() -> int:
    """Print the times; exits with 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        size_kb = write(Path(folder), options.runs)
        where = ["--logs-dir", folder]
        first = timed("runs", *where, "--last", "20")
        again = timed("runs", *where, "--last", "20")
        whole = timed("history", "train.py", *where)
    print(f"{options.runs:,} runs, {size_kb:.0f} KB each")
    print(f"  traceml runs, nothing cached   {first:6.2f} s   target {MOST_S:g} s")
    print(f"  traceml runs, cached           {again:6.2f} s   target {MOST_S:g} s")
    print(f"  traceml history of all, cached {whole:6.2f} s   target {MOST_S:g} s")
    return int(max(first, again, whole) > MOST_S)


if __name__ == "__main__":
    sys.exit(main())
