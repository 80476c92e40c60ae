"""Runs a Lightning script in a clean process or under `traceml run`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import scripted
from scripted import Run

SCRIPTS = Path(__file__).with_name("scripts")

RunScript = Callable[..., Run]


@pytest.fixture(scope="session")
def run_script() -> RunScript:
    """Run one of our scripts, with its arguments, in a folder."""

    def run(script: str, folder: Path, *args: str, traced: bool = True, options: Sequence[str] = ()) -> Run:
        return scripted.run(SCRIPTS / script, folder, *args, traced=traced, options=options)

    return run


@pytest.fixture(scope="session")
def run_both() -> Callable[..., tuple[Run, Run]]:
    """Run one of our scripts under TraceML and without it, side by side."""

    def run(script: str, folder: Path, *args: str) -> tuple[Run, Run]:
        return scripted.run_both(SCRIPTS / script, folder, *args)

    return run
