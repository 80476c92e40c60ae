"""Jobs whose late rank is known by construction, and how to run one under `traceml run`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from traceml_ai.schema.summary import Finding, Summary, decode

JOB = Path(__file__).with_name("scripts") / "job.py"
STRAGGLERS = ("INPUT_STRAGGLER", "COMPUTE_STRAGGLER", "H2D_STRAGGLER", "STRAGGLER")
PATIENCE_S = 120


class Case(NamedTuple):
    """A job and what is true of it."""

    name: str
    args: str
    kind: str | None  # None: no rank may be named
    ranks: list[int] | None = None
    phase: str | None = None
    persistence: str = "steady"
    world: int = 2

    def problems(self, summary: Summary) -> list[str]:
        """Return what the summary says that is not true."""
        found = stragglers(summary)
        if self.kind is None:
            return [f"named: {finding.why}" for finding in found]
        if not found:
            return [f"nobody named: {summary.diagnosis.kind}: {summary.diagnosis.why}"]
        first = found[0]
        said = (first.kind, first.scope.ranks, first.scope.phase, first.evidence["persistence"])
        true = (self.kind, self.ranks, self.phase, self.persistence)
        return [] if said == true and len(found) == 1 else [f"{said} instead of {true}: {first.why}"]


COMPUTE, INPUT, OTHER = "COMPUTE_STRAGGLER", "INPUT_STRAGGLER", "STRAGGLER"
CASES = [
    Case("none", "", None),
    Case("data", "--late data", INPUT, [1], "input_wait"),
    Case("forward", "--late forward", COMPUTE, [1], "forward"),
    Case("backward", "--late backward", COMPUTE, [1], "backward"),
    Case("optimizer", "--late optimizer --rank 0", COMPUTE, [0], "optimizer"),
    Case("after the step", "--late after", OTHER, [1], "between_steps"),
    Case("in turn", "--late forward --in-turn", OTHER, None, "forward", "rotating"),
    Case(
        "one step in fifty",
        "--late forward --every 50 --steps 400 --ms 200",
        COMPUTE,
        [1],
        "forward",
        "one-off",
    ),
    Case("accumulation", "--late backward --accumulate 3 --steps 25", COMPUTE, [1], "backward"),
    Case("uneven inputs", "--late forward --uneven", COMPUTE, [1], "forward"),
    Case("buffers", "--late data --kind buffers", INPUT, [1], "input_wait"),
    Case("reduced by hand", "--late backward --kind by-hand", COMPUTE, [1], "backward"),
    Case("FSDP data", "--late data --kind fsdp", INPUT, [1], "input_wait"),
    Case("FSDP backward", "--late backward --kind fsdp", COMPUTE, [1], "backward"),
    Case("four ranks", "--late data --rank 2 --steps 25", INPUT, [2], "input_wait", world=4),
    Case("four ranks, none", "--steps 25", None, world=4),
]
# Jobs that no threshold was chosen by.
FRESH = [
    Case(
        "three ranks, 120 ms data",
        "--late data --rank 2 --ms 120 --steps 25",
        INPUT,
        [2],
        "input_wait",
        world=3,
    ),
    Case("four ranks, 25 ms backward", "--late backward --rank 3 --ms 25", COMPUTE, [3], "backward", world=4),
    Case("three ranks, 25 ms optimizer", "--late optimizer --ms 25", COMPUTE, [1], "optimizer", world=3),
    Case("copy", "--late copy --ms 25 --rank 0", OTHER, [0], "residual"),
    Case(
        "one step in a hundred",
        "--late data --every 100 --steps 800 --ms 250",
        INPUT,
        [1],
        "input_wait",
        "one-off",
    ),
    Case(
        "three in turn",
        "--late backward --in-turn --ms 25 --steps 60",
        OTHER,
        None,
        "backward",
        "rotating",
        world=3,
    ),
    Case("2.9 ms against 3.4 ms", "--uneven-work --steps 200", None),
    Case("three ranks, 2.9 against 3.4", "--uneven-work --steps 150 --rank 2", None, world=3),
    Case("FSDP forward, 25 ms", "--late forward --ms 25 --kind fsdp", COMPUTE, [1], "forward"),
    Case("FSDP, four ranks, none", "--kind fsdp --steps 40", None, world=4),
    Case(
        "accumulation over four, three ranks",
        "--late forward --accumulate 4 --ms 25 --rank 2 --steps 25",
        COMPUTE,
        [2],
        "forward",
        world=3,
    ),
    Case(
        "uneven inputs, three ranks",
        "--late data --uneven --ms 25 --rank 2",
        INPUT,
        [2],
        "input_wait",
        world=3,
    ),
    Case("uneven inputs, none", "--uneven --steps 60", None),
]
BY_NAME = {case.name: case for case in [*CASES, *FRESH]}


def stragglers(summary: Summary) -> list[Finding]:
    """Return the findings that name a late rank, or say that there is one."""
    return [finding for finding in summary.findings if finding.kind in STRAGGLERS]


class Ended(NamedTuple):
    """A finished job."""

    returncode: int
    stderr: str
    summary: Summary


def run(args: str, folder: Path, *, world: int = 2, script: Path = JOB) -> Ended:
    """Run a job under `traceml run --nproc-per-node`."""
    command = [sys.executable, "-m", "traceml_ai", "run", "--logs-dir", str(folder), "--run-name", "job"]
    ended = subprocess.run(
        [*command, f"--nproc-per-node={world}", str(script), "--args", *args.split()],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    written = folder / "job" / "final_summary.json"
    assert written.exists(), ended.stderr
    return Ended(ended.returncode, ended.stderr, decode(written.read_bytes()))
