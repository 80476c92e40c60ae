"""Runs a Lightning script in a clean process or under `traceml run`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

SCRIPTS = Path(__file__).with_name("scripts")
PATIENCE_S = 240


class Run(NamedTuple):
    """A script that ran to its end."""

    code: int
    out: str
    found: dict[str, Any]
    summary: dict[str, Any]


RunScript = Callable[..., Run]


def start(
    script: Path, folder: Path, *args: str, traced: bool, options: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    """Start a script that may write what it found to the path it is given first."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable]
    if traced:
        command += ["-m", "traceml_ai", "run", "--mode", "summary", "--logs-dir", str(folder / "logs")]
        command += ["--run-name", "one", *options, str(script), "--args"]
    else:
        command += [str(script)]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TRACEML_")}
    with (folder / "out").open("w") as out:
        return subprocess.Popen(
            [*command, str(folder / "found.json"), *args],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**clean, "OMP_NUM_THREADS": "1"},
        )


def finish(process: subprocess.Popen[bytes], folder: Path) -> Run:
    """Wait for a script and gather what it left."""
    code = process.wait(timeout=PATIENCE_S)
    return Run(
        code,
        (folder / "out").read_text(),
        _json(folder / "found.json"),
        _json(folder / "logs" / "one" / "final_summary.json"),
    )


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_bytes()) if path.exists() else {}


@pytest.fixture(scope="session")
def run_script() -> RunScript:
    """Run one of our scripts, with its arguments, in a folder."""

    def run(script: str, folder: Path, *args: str, traced: bool = True, options: Sequence[str] = ()) -> Run:
        started = start(SCRIPTS / script, folder, *args, traced=traced, options=options)
        return finish(started, folder)

    return run


@pytest.fixture(scope="session")
def run_both() -> Callable[..., tuple[Run, Run]]:
    """Run one of our scripts under TraceML and without it, side by side."""

    def run(script: str, folder: Path, *args: str) -> tuple[Run, Run]:
        places = folder / "traced", folder / "plain"
        started = [start(SCRIPTS / script, p, *args, traced=p.name == "traced") for p in places]
        traced, plain = (finish(process, p) for process, p in zip(started, places, strict=True))
        return traced, plain

    return run
