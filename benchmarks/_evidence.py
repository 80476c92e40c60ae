"""Writes measured tables into the pages of docs/evidence, with the state of the machine."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import json
import os
import platform
from pathlib import Path
from typing import Any

PAGES = Path(__file__).parent.parent / "docs" / "evidence"
RESULTS = PAGES / "results"
"""What the tables are made of, so that a measurement can be stopped and gone on with."""


def machine(*packages: str) -> str:
    """Return in one sentence what figures depend on: processors, load, versions, the day.

    Args:
        packages: Distributions whose versions matter, beside torch.
    """
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = f"load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "load unknown"
    versions = [f"{name} {_version(name)}" for name in ("torch", *packages)]
    day = f"{dt.datetime.now(dt.timezone.utc):%Y-%m-%d}"
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return f"{day}, {_processor()}, {usable} processors, {load}, {system}, {', '.join(versions)}."


def write(page: str, name: str, text: str) -> Path:
    """Replace what stands between a page's marks of this name.

    Raises:
        ValueError: The page has no such marks.
    """
    path = PAGES / f"{page}.md"
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = path.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"{path} has no marks {begin} and {end}")
    path.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}")
    return path


def kept(name: str) -> Any:
    """Return what earlier calls have kept under this name; an empty dictionary where nothing is."""
    path = _results(name)
    return json.loads(path.read_text()) if path.exists() else {}


def keep(name: str, results: Any) -> None:
    """Keep results, as JSON has them, in place of what was kept under this name."""
    RESULTS.mkdir(exist_ok=True)
    _results(name).write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")


def _results(name: str) -> Path:
    return RESULTS / f"{name}.json"


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or "unknown processor"
