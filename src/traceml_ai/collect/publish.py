"""Puts the run's files where they belong, or, when that can't be, somewhere else, and says so once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from traceml_ai.collect.notes import Notes
from traceml_ai.spool.atomic import write_atomic


class Publisher:
    """Writes files of a run.

    Args:
        folder: The run folder; ``None`` when there is none.
        elsewhere: Makes another folder when the first can't be written to.
        notes: For what went wrong.
    """

    def __init__(self, folder: Path | None, elsewhere: Callable[[], Path | None], notes: Notes) -> None:
        self.folder = folder
        self._elsewhere = elsewhere
        self._notes = notes

    def write(self, name: str, data: bytes) -> Path | None:
        """Write one file atomically.

        Returns:
            Where it is, ``None`` when it could be written nowhere.
        """
        path = self._try(name, data)
        if path is None and self.folder is None and (folder := self._elsewhere()) is not None:
            self.folder = folder
            self._notes.add("elsewhere", f"the run's files go to {folder}", aloud=True)
            path = self._try(name, data)
        return path

    def _try(self, name: str, data: bytes) -> Path | None:
        if self.folder is None:
            return None
        try:
            write_atomic(self.folder / name, data)
        except OSError as error:
            where, self.folder = self.folder, None
            self._notes.add(f"unwritable {where}", f"can't write to {where} ({error.strerror})")
            return None
        return self.folder / name
