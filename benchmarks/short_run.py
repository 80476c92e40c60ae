"""What ``traceml run`` adds to a whole short script, and what the collector takes beside it.

    python benchmarks/short_run.py [--pairs N] [--json]

Plain Python and ``traceml run`` take turns on a script that trains for a second or so. Added wall time is
the median over pairs, with a 95 % interval from a bootstrap over pairs. Memory and processor use of the
launcher, which is the collector too, are sampled while it runs; memory that measuring takes in the training
process is the difference of the script's own peak resident size, again over pairs.
Targets: 0.5 s, collector 60 MB and 2 % of a core, training process 5 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

MOST_ADDED_S, MOST_COLLECTOR_MB, MOST_COLLECTOR_CPU_PCT, MOST_OWN_MB = 0.5, 60.0, 2.0, 5.0

SCRIPT = """
import resource, sys
import torch

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
data = torch.utils.data.TensorDataset(torch.randn(STEPS * 32, 64), torch.randint(10, (STEPS * 32,)))
for x, y in torch.utils.data.DataLoader(data, batch_size=32):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


class Once(NamedTuple):
    """One run."""

    wall_s: float
    script_mb: float
    collector_mb: float = 0.0
    collector_cpu_s: float = 0.0


def run_once(command: Sequence[str], folder: str, *, watch: bool) -> Once:
    """Run to the end; with ``watch`` also look at the process that was started."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    memory, cpu = watched(process.pid) if watch else (0.0, 0.0)
    stdout, stderr = process.communicate()
    wall = time.perf_counter() - begin
    assert process.returncode == 0, stderr
    kib = next(int(line) for line in stdout.splitlines() if line.isdecimal())
    return Once(wall, kib / 1024, memory, cpu)


def watched(pid: int) -> tuple[float, float]:
    """Peak memory in MB and processor seconds of a process, sampled ten times a second until it ends."""
    process, peak, cpu = psutil.Process(pid), 0, 0.0
    while True:
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                return peak / 2**20, cpu
            times = process.cpu_times()
            peak, cpu = max(peak, process.memory_info().rss), times.user + times.system
        except psutil.Error:
            return peak / 2**20, cpu
        time.sleep(0.1)


def bootstrap(values: list[float], draws: int = 2000) -> tuple[float, float]:
    """95 % interval of the median."""
    chance = random.Random(0)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(draws))
    return medians[int(0.025 * draws)], medians[int(0.975 * draws)]


def cpu_between_pct(short: Once, long: Once) -> float:
    """The collector's share of a core from the end of the shorter run to that of the longer one.

    Start and summary cancel out.
    """
    return 100 * (long.collector_cpu_s - short.collector_cpu_s) / (long.wall_s - short.wall_s)


def measure(pairs: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        for name, steps in (("short.py", 1000), ("middle.py", 12_000), ("long.py", 60_000)):
            Path(folder, name).write_text(SCRIPT.replace("STEPS", str(steps)))
        tool = [sys.executable, "-m", "traceml_ai", "run", "--mode", "summary"]
        run_once([sys.executable, "short.py"], folder, watch=False)  # files come from the disk once
        off, on = [], []
        for _ in range(pairs):
            off.append(run_once([sys.executable, "short.py"], folder, watch=False))
            on.append(run_once([*tool, "short.py"], folder, watch=True))
        middle, long = (run_once([*tool, name], folder, watch=True) for name in ("middle.py", "long.py"))
        short = min(on, key=lambda each: each.collector_cpu_s)
    added = [b.wall_s - a.wall_s for a, b in zip(off, on, strict=True)]
    low, high = bootstrap(added)
    return {
        "plain_s": statistics.median(each.wall_s for each in off),
        "added_s": statistics.median(added),
        "low_s": low,
        "high_s": high,
        "collector_mb": max(each.collector_mb for each in [*on, middle, long]),
        "collector_cpu_early_pct": cpu_between_pct(short, middle),
        "collector_cpu_pct": cpu_between_pct(middle, long),
        "own_mb": statistics.median(b.script_mb - a.script_mb for a, b in zip(off, on, strict=True)),
        "middle_run_s": middle.wall_s,
        "long_run_s": long.wall_s,
    }


def main() -> int:
    """Print a table, or JSON; exits with 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options.pairs)
    if options.json:
        print(json.dumps(found))
    else:
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
        print(f"{os.cpu_count()} CPUs, load {load:.2f}, {options.pairs} pairs")
        print(f"  the script alone  {found['plain_s']:7.2f} s")
        print(
            f"  added wall time   {found['added_s']:7.2f} s   [{found['low_s']:.2f}, {found['high_s']:.2f}]  "
            f"target {MOST_ADDED_S:g} s"
        )
        print(f"  collector memory  {found['collector_mb']:7.1f} MB  target {MOST_COLLECTOR_MB:g} MB")
        print(
            f"  collector CPU     {found['collector_cpu_pct']:7.2f} %   of a core from second "
            f"{found['middle_run_s']:.0f} to {found['long_run_s']:.0f}, target {MOST_COLLECTOR_CPU_PCT:g} %"
            f" (before that {found['collector_cpu_early_pct']:.2f} %)"
        )
        print(f"  training process  {found['own_mb']:+7.1f} MB  target {MOST_OWN_MB:g} MB")
    return int(
        found["added_s"] > MOST_ADDED_S
        or found["collector_mb"] > MOST_COLLECTOR_MB
        or found["collector_cpu_pct"] > MOST_COLLECTOR_CPU_PCT
        or found["own_mb"] > MOST_OWN_MB
    )


if __name__ == "__main__":
    sys.exit(main())
