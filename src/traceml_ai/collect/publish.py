"""Puts the run's files where they belong, or, when that can't be, somewhere else, and says so once."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from pathlib import Path

from traceml_ai.collect.notes import Notes
from traceml_ai.spool.atomic import write_atomic

_FULL = {errno.ENOSPC, errno.EDQUOT} if hasattr(errno, "EDQUOT") else {errno.ENOSPC}


class Publisher:
    """Writes files of a run.

    A folder that could not be written to is tried again with every file: disks fill up and are cleaned up.

    Args:
        folder: The run folder; ``None`` when there is none.
        elsewhere: Makes another folder when the first can't be written to.
        notes: For what went wrong.
    """

    def __init__(self, folder: Path | None, elsewhere: Callable[[], Path | None], notes: Notes) -> None:
        self.folder = folder
        self._home = folder
        self._elsewhere = elsewhere
        self._notes = notes

    def write(self, name: str, data: bytes) -> Path | None:
        """Write one file atomically.

        Returns:
            Where it is, ``None`` when it could be written nowhere.
        """
        path = self._back_home(name, data) or self._try(name, data)
        if path is None and self.folder is None and (folder := self._elsewhere()) is not None:
            self.folder = folder
            self._notes.add("elsewhere", f"the run's files go to {folder}", aloud=True)
            path = self._try(name, data)
        return path

    def _back_home(self, name: str, data: bytes) -> Path | None:
        if self._home is None or self.folder == self._home:
            return None
        try:
            _write(self._home / name, data)
        except OSError:
            return None
        self.folder = self._home
        return self._home / name

    def _try(self, name: str, data: bytes) -> Path | None:
        if self.folder is None:
            return None
        try:
            _write(self.folder / name, data)
        except OSError as error:
            where, self.folder = self.folder, None
            self._notes.add(f"unwritable {where}", f"can't write to {where} ({error.strerror})")
            return None
        return self.folder / name


def _write(path: Path, data: bytes) -> None:
    """Write a file; on a full disk the older version makes room for the newer one."""
    try:
        write_atomic(path, data)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        with contextlib.suppress(OSError):
            path.unlink()
        write_atomic(path, data)
