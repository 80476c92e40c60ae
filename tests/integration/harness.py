"""Runs a program twice, in a clean process and under `traceml run`, and compares what it found."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

SCRIPTS = Path(__file__).parent / "scripts"
PATIENCE_S = 240


class Run(NamedTuple):
    """One program that ran to its end.

    Attributes:
        code: Its exit code.
        stderr: What it and the tool wrote on standard error.
        found: What its checks returned, by name.
        folder: Where it ran.
        summary: `final_summary.json`; None without `traceml run`.
    """

    code: int
    stderr: str
    found: dict[str, Any]
    folder: Path
    summary: dict[str, Any] | None


class Pair(NamedTuple):
    """The same program without and with TraceML."""

    plain: Run
    traced: Run


def begin(program: Path | str, folder: Path, *, traced: bool, env: dict[str, str] | None = None) -> Any:
    """Start a program that is given the path of the file it may write its results to."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable]
    if traced:
        command += ["-m", "traceml_ai", "run", "--logs-dir", str(folder / "logs"), "--run-name", "one"]
    command += [str(program), *(["--args"] if traced else []), str(folder / "found.json")]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TRACEML_")}
    with (folder / "stdout").open("w") as stdout, (folder / "stderr").open("w") as stderr:
        return subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env={**clean, "OMP_NUM_THREADS": "1", **(env or {})},
        )


def finish(process: Any, folder: Path) -> Run:
    """Wait for a program and gather what it left."""
    code = process.wait(timeout=PATIENCE_S)
    return Run(
        code,
        (folder / "stderr").read_text(),
        _json(folder / "found.json") or {},
        folder,
        _json(folder / "logs" / "one" / "final_summary.json"),
    )


def both(program: Path | str, folder: Path, *, env: dict[str, str] | None = None) -> Pair:
    """Run a program in both ways, side by side."""
    folders = folder / "plain", folder / "traced"
    started = [begin(program, f, traced=f.name == "traced", env=env) for f in folders]
    return Pair(*(finish(process, f) for process, f in zip(started, folders, strict=True)))


def checks_of(program: str, still_open: dict[str, str] | None = None) -> list[Any]:
    """Return the checks in a script of ours, as parameters of a test.

    Args:
        program: The script's name.
        still_open: Checks that are known to fail, with the reason.
    """
    tree = ast.parse((SCRIPTS / program).read_text())
    names = [n.name for n in tree.body if isinstance(n, ast.FunctionDef) and n.name.startswith("check_")]
    why = still_open or {}
    assert set(why) <= set(names)
    return [
        pytest.param(n, id=n, marks=[pytest.mark.xfail(reason=why[n], strict=True)] if n in why else [])
        for n in names
    ]


def same(pair: Pair, check: str) -> None:
    """Assert that a check worked in the clean process, and found the same under TraceML."""
    expected = pair.plain.found[check]
    assert not (isinstance(expected, dict) and "raised" in expected), expected
    assert pair.traced.found[check] == expected


def _json(path: Path) -> dict[str, Any] | None:
    return json.loads(path.read_bytes()) if path.exists() else None
