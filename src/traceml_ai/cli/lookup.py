"""Finding a run by what the user calls it, and writing text that any terminal can show."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from pathlib import Path

from traceml_ai.errors import UsageError
from traceml_ai.spool.runfolder import MANIFEST_FILE, SUMMARY_FILE


def find_run(word: str, logs: Path) -> Path:
    """Return the summary file or run folder that a word means.

    Args:
        word: A path, or a run name under ``logs``.
        logs: The log folder.

    Raises:
        UsageError: There is no such run.
    """
    path, named = Path(word), logs / word
    if path.is_file() or _is_run(path):
        return path
    if _is_run(named):
        return named
    if path.is_dir():
        raise UsageError(f"{word} is no run folder: there is no {SUMMARY_FILE} or {MANIFEST_FILE} in it")
    raise UsageError(
        f"there is no run {word}: name a {SUMMARY_FILE}, a run folder, or a run in {logs}{_meant(word, logs)}"
    )


def _is_run(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (SUMMARY_FILE, MANIFEST_FILE))


def _meant(word: str, logs: Path) -> str:
    try:
        names = [entry.name for entry in logs.iterdir()]
    except OSError:
        return ""
    close = difflib.get_close_matches(word, names, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def write_text(render: Callable[[bool], str]) -> None:
    """Write to standard output what ``render`` makes, in ASCII where nothing else can be shown."""
    text = render(False)
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        text = render(True)
    sys.stdout.write(text)
    sys.stdout.flush()
