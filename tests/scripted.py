"""Runs a script in a clean process or under `traceml run`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

PATIENCE_S = 240


class Run(NamedTuple):
    """A script that ran to its end."""

    code: int
    out: str
    found: dict[str, Any]
    summary: dict[str, Any]


def start(
    script: Path, folder: Path, *args: str, traced: bool, options: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    """Start a script that may write what it found to the path it is given first.

    ``options`` are further ones of `traceml run`.
    """
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


def run(script: Path, folder: Path, *args: str, traced: bool = True, options: Sequence[str] = ()) -> Run:
    """Run a script to its end."""
    return finish(start(script, folder, *args, traced=traced, options=options), folder)


def run_both(script: Path, folder: Path, *args: str) -> tuple[Run, Run]:
    """Run a script under TraceML and without it, side by side."""
    places = folder / "traced", folder / "plain"
    started = [start(script, p, *args, traced=p.name == "traced") for p in places]
    traced, plain = (finish(process, p) for process, p in zip(started, places, strict=True))
    return traced, plain


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_bytes()) if path.exists() else {}
