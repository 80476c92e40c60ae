"""Reading a log folder: every run folder's row, from the cache where nothing changed."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from traceml_ai.errors import TraceMLError
from traceml_ai.index.rows import Row, row_of
from traceml_ai.spool.atomic import write_atomic
from traceml_ai.spool.runfolder import MANIFEST_FILE, SUMMARY_FILE

INDEX_FILE = ".traceml-index.msgpack"
_VERSION = 1  # raised when a row changes its fields or how they are computed


class _Index(msgspec.Struct):
    version: int
    rows: list[Row]


def read_runs(logs: Path) -> list[Row]:
    """Return a row for every run below a log folder, oldest first.

    Summaries that did not change since they were last read are not read again. The cache is a file in the log
    folder; where it can't be written everything is read every time.

    Args:
        logs: The folder that holds the run folders.

    Raises:
        TraceMLError: It can't be read.
    """
    known = {row.folder: row for row in _load(logs)}
    try:
        with os.scandir(logs) as entries:
            rows = [row for entry in entries if (row := _row(entry, known)) is not None]
    except OSError as error:
        raise TraceMLError(
            f"can't read the log folder {logs} ({error.strerror}): name it with --logs-dir"
        ) from None
    # A run that goes on is no reason to write tens of megabytes again; it is read anew each time anyway.
    kept = [row for row in rows if _is_text(row.folder)]
    if {row.folder: row.stamp for row in kept} != {name: row.stamp for name, row in known.items()}:
        _save(logs, kept)
    return sorted(rows, key=lambda row: (row.started_at or "", row.folder))


def _row(entry: os.DirEntry[str], known: dict[str, Row]) -> Row | None:
    """Return an entry's row; ``None`` for what is no run folder."""
    if not entry.is_dir():
        return None
    for path in (f"{entry.path}/{SUMMARY_FILE}", f"{entry.path}/{MANIFEST_FILE}"):
        try:
            found = os.stat(path)  # noqa: PTH116  ten thousand times: pathlib would double the time
        except OSError:
            continue
        stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        old = known.get(entry.name)
        return old if old is not None and old.stamp == stamp else _read(entry.name, path, stamp)
    return None


def _read(folder: str, path: str, stamp: tuple[int, int, int]) -> Row:
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123  as above
            data = file.read()
    except OSError as error:
        return Row(folder=folder, stamp=stamp, problem=f"can't be read ({error.strerror})")
    if path.endswith(SUMMARY_FILE):
        return row_of(folder, stamp, data)
    return _started_only(folder, stamp, data)


def _started_only(folder: str, stamp: tuple[int, int, int], data: bytes) -> Row:
    """Return the row of a run that has a manifest and no summary: it just began, or its collector died."""
    with contextlib.suppress(ValueError, AttributeError, RecursionError):
        started = json.loads(data).get("started_at")
        started = started if isinstance(started, str) else None
        problem = f"has no summary yet: traceml view {folder} rebuilds it"
        return Row(folder=folder, stamp=stamp, started_at=started, problem=problem)
    return Row(folder=folder, stamp=stamp, problem=f"its {MANIFEST_FILE} is damaged")


def _is_text(name: str) -> bool:
    """Whether a file name is text: where its bytes are not, no cache can hold it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _load(logs: Path) -> list[Row]:
    """Return what the cache holds; a cache of another version, or damaged, holds nothing."""
    try:
        found = msgspec.msgpack.decode((logs / INDEX_FILE).read_bytes(), type=_Index)
    except (OSError, msgspec.DecodeError, RecursionError):
        return []
    return found.rows if found.version == _VERSION else []


def _save(logs: Path, rows: list[Row]) -> None:
    with contextlib.suppress(OSError):  # somebody else's folder, a read-only disk
        write_atomic(logs / INDEX_FILE, msgspec.msgpack.encode(_Index(_VERSION, rows)))


def log_folders(paths: list[Path]) -> Iterator[Path]:
    """Yield the log folders that these run folders or summary files lie in."""
    for path in paths:
        folder = path if path.is_dir() else path.parent
        if path.is_dir() or path.name == SUMMARY_FILE:
            yield folder.resolve().parent
