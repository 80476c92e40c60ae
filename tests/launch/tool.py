"""Starts real programs, under `traceml run` and under plain Python beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

PYTHON = [sys.executable]
TRACEML = [sys.executable, "-m", "traceml_ai"]
PATIENCE_S = 60


class Ended(NamedTuple):
    """A program that ran to its end."""

    returncode: int
    stdout: str
    stderr: str


def script(folder: Path, text: str, name: str = "train.py") -> Path:
    """Write a script."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def run(
    command: Sequence[str], folder: Path, *, stdin: str | None = None, env: Mapping[str, str] | None = None
) -> Ended:
    """Run a command to its end."""
    ended = subprocess.run(
        command,
        cwd=folder,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, **(env or {})},
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def traced(words: Sequence[str], folder: Path, **more: Any) -> Ended:
    """Run `traceml run` with these words."""
    return run([*TRACEML, "run", *words], folder, **more)


def plain(words: Sequence[str], folder: Path, **more: Any) -> Ended:
    """Run plain Python with these words."""
    return run([*PYTHON, *words], folder, **more)


def start(command: Sequence[str], folder: Path, **more: Any) -> subprocess.Popen[str]:
    """Start a command in a process group of its own, and wait until it wrote a line."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdin=more.pop("stdin", subprocess.DEVNULL),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **more,
    )
    assert process.stdout is not None
    assert process.stdout.readline(), process.communicate()
    return process


def end(process: subprocess.Popen[str]) -> Ended:
    """Wait for a started command."""
    stdout, stderr = process.communicate(timeout=PATIENCE_S)
    return Ended(process.returncode, stdout, stderr)


def run_folder(folder: Path) -> Path:
    """Return the only run folder below `logs`."""
    (found,) = (folder / "logs").iterdir()
    return found


def summary(folder: Path) -> dict[str, Any]:
    """Return the summary of the only run below `logs`."""
    found = json.loads((run_folder(folder) / "final_summary.json").read_bytes())
    assert isinstance(found, dict)
    return found


def manifest(folder: Path) -> dict[str, Any]:
    """Return `run.json` of the only run below `logs`."""
    found = json.loads((run_folder(folder) / "run.json").read_bytes())
    assert isinstance(found, dict)
    return found
