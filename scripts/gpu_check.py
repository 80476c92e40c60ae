"""Everything about an accelerator that needs one, in at most eight minutes; a table, and what was missed.

    scripts/gpu_check.sh [--fake] [--only NAME ...] [--write]

Device times against kernels of a known length, no waiting for the device, bounds of the event pool, copies
from pinned and pageable memory, memory at the end of a step, what measuring adds to a step, runs whose
verdict is known, Lightning and MONAI, CUDA graphs and `torch.compile`.

--fake does what can be done without a device on one that only pretends; the table says what that is not.
Exit code: 0 all met, 1 a target was missed or a check failed, 2 there is no CUDA device.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent / "gpu"
NO_DEVICE = 2
HEAD = ["check", "measured", "target", "met"]
PATIENCE_S = 120
STEPS = 60  # of every run
RUNS = ("host_bound", "h2d_bound", "lightning", "monai")
NAMES = ("inside", "overhead", *RUNS)
Row = tuple[str, str, str, bool | None]


def check(name: str, kind: str) -> list[Row]:
    """Do one check in processes of its own."""
    try:
        if name in RUNS:
            return run(name, kind)
        command = [sys.executable, str(HERE / f"{name}.py"), kind]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        if ended.returncode != 0:
            return [(name, _last_line(ended.stderr), "ends well", False)]
        return [(*row[:3], row[3]) for row in json.loads(ended.stdout.splitlines()[-1])["rows"]]
    except subprocess.TimeoutExpired:
        return [(name, f"not over after {PATIENCE_S} s", "ends", False)]


def run(name: str, kind: str) -> list[Row]:
    """Train under `traceml run` and look at the summary."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "traceml_ai", "run", "--mode", "summary", "--logs-dir", folder]
        command += ["--run-name", "run", str(HERE / "train.py"), "--args", kind, name]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        path = Path(folder) / "run" / "final_summary.json"
        if ended.returncode != 0 or not path.exists():
            return [(f"{name} run", _last_line(ended.stderr), "ends well", False)]
        return judged(name, json.loads(path.read_bytes()))


def judged(name: str, summary: dict[str, Any]) -> list[Row]:
    """Compare a run's summary with what it was made to be."""
    clock, steps = summary["step_time"]["clock"], summary["run"]["steps"]
    rows: list[Row] = [
        (f"{name}: clock, steps", f"{clock}, {steps}", "device, 60", (clock, steps) == ("device", 60))
    ]
    if name.endswith("_bound"):
        found = summary["diagnosis"]["kind"]
        rows.append((f"{name}: verdict", found, name.upper(), found == name.upper()))
    return rows


def device_name() -> str | None:
    """Return the CUDA device; ``None``: there is none."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def in_words(rows: list[Row]) -> list[list[str]]:
    met = {True: "yes", False: "MISSED", None: "not run"}
    return [[*row[:3], met[row[3]]] for row in rows]


def show(rows: list[Row]) -> None:
    words = [HEAD, *in_words(rows)]
    widths = [max(len(line[k]) for line in words) for k in range(len(HEAD))]
    for line in words:
        print("  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip())


def write_page(where: str, rows: list[Row], *, fake: bool) -> None:
    """Put the table into docs/evidence/accelerator.md."""
    sys.path.insert(0, str(HERE.parents[1] / "benchmarks"))
    from _evidence import machine, table, write

    text = f"{machine()} {where.capitalize()}.\n\n{table(HEAD, in_words(rows))}"
    write("accelerator", "pretended" if fake else "hardware", text)


def summed_up(rows: list[Row], took_s: float) -> str:
    missed = sum(row[3] is False for row in rows)
    left_out = sum(row[3] is None for row in rows)
    return f"{len(rows) - missed - left_out} met, {missed} missed, {left_out} not run; {took_s:.0f} s"


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it failed"])[-1][:100]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fake", action="store_true", help="on a device that only pretends")
    parser.add_argument(
        "--only", nargs="+", choices=NAMES, default=NAMES, metavar="NAME", help=", ".join(NAMES)
    )
    parser.add_argument("--write", action="store_true", help="put it into docs/evidence/accelerator.md too")
    args = parser.parse_args()
    name = "a device that only pretends: this has NOT run on hardware" if args.fake else device_name()
    if name is None:
        print(
            "gpu_check: torch sees no CUDA device here: nothing was checked (--fake does what can be without)"
        )
        return NO_DEVICE
    begin = time.monotonic()
    rows = [row for each in args.only for row in check(each, "fake" if args.fake else "real")]
    print(f"On {name}\n")
    show(rows)
    if args.write:
        write_page(name, rows, fake=args.fake)
    print("\n" + summed_up(rows, time.monotonic() - begin))
    return int(any(row[3] is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
