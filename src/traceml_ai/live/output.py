"""What the program printed, kept in a bounded number of files that one process writes and many read.

The files lie in the run's spool folder, in memory or on a local disk: whoever writes them stands
between the program and its terminal and must never wait for a network. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

PREFIX = "output."
SEGMENT_BYTES = 4 << 20
SEGMENTS = 4
"""Room for 16 MiB: a viewer that lags further behind than that misses what lies between."""


class OutputWriter:
    """Appends to the output of a run; the oldest part goes when there is too much.

    Args:
        folder: The spool folder.
        segment_bytes: Begin a new file beyond this size.
    """

    def __init__(self, folder: Path, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._descriptor: int | None = None
        self._room = 0
        self.offset = 0  # bytes written so far

    def write(self, data: bytes) -> None:
        """Append; what the disk refuses is lost, never waited for."""
        try:
            self._write(data)
        except OSError:  # full, or the folder is gone: readers see a gap
            self._close()
        self.offset += len(data)

    def _write(self, data: bytes) -> None:
        if self._descriptor is None or self._room <= 0:
            self._begin_segment()
        assert self._descriptor is not None
        self._room -= len(data)
        if os.write(self._descriptor, data) < len(data):
            self._room = 0

    def _begin_segment(self) -> None:
        self._close()
        path = self._folder / f"{PREFIX}{self.offset:015d}"
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._room = self._segment_bytes
        for _, old in _segments(self._folder)[:-SEGMENTS]:
            old.unlink(missing_ok=True)

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None


class OutputReader:
    """Follows the output of a run.

    Args:
        folder: The spool folder.
        offset: Begin there.
    """

    def __init__(self, folder: Path, offset: int = 0) -> None:
        self._folder = folder
        self.offset = offset
        self.lost = 0  # bytes that were gone before they were read

    def read(self, most: int = 1 << 20) -> bytes:
        """Return the next bytes, at most ``most``; empty: there are none yet."""
        segments = _segments(self._folder)
        for at, (start, path) in enumerate(segments):
            follows = segments[at + 1][0] if at + 1 < len(segments) else None
            if follows is not None and follows <= self.offset:
                continue
            if start > self.offset:
                self._skip_to(start)
            data = _read_at(path, self.offset - start, most)
            if data:
                self.offset += len(data)
                return data
            if follows is not None:  # its end was refused by the disk
                self._skip_to(follows)
        return b""

    def skip_to_last(self, most: int) -> None:
        """Leave out all but the last ``most`` bytes of what has not been read."""
        if (segments := _segments(self._folder)) and (end := _end(segments)) - self.offset > most:
            self._skip_to(end - most)

    def _skip_to(self, offset: int) -> None:
        self.lost += offset - self.offset
        self.offset = offset


class FileReader:
    """Follows a plain file, as the shell's redirection makes one.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.offset = 0
        self.lost = 0

    def read(self, most: int = 1 << 20) -> bytes:
        """Return the next bytes, at most ``most``; empty: there are none yet."""
        data = _read_at(self._path, self.offset, most)
        self.offset += len(data)
        return data.replace(b"\n", b"\r\n")  # as a terminal does; a second carriage return changes nothing

    def skip_to_last(self, most: int) -> None:
        """Leave out all but the last ``most`` bytes of what has not been read."""
        with contextlib.suppress(OSError):
            end = self._path.stat().st_size
            if end - self.offset > most:
                self.lost += end - most - self.offset
                self.offset = end - most


def _segments(folder: Path) -> list[tuple[int, Path]]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.name.startswith(PREFIX))
    except OSError:
        return []
    return [(int(name[len(PREFIX) :]), folder / name) for name in names if name[len(PREFIX) :].isdigit()]


def _end(segments: list[tuple[int, Path]]) -> int:
    start, path = segments[-1]
    try:
        return start + path.stat().st_size
    except OSError:
        return start


def _read_at(path: Path, offset: int, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(most)
    except OSError:
        return b""
