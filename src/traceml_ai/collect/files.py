"""Reading the small files of ``/proc`` and ``/sys``: absent, forbidden and odd ones are ``None``."""

from __future__ import annotations

import re
from pathlib import Path

from traceml_ai.collect.notes import Notes

_PID = re.compile(r"/\d+/")


class Files:
    """A file system to read counters from.

    Args:
        root: Where ``/`` is; tests put a fixture tree there.
        notes: A file that may not be read is remarked there, once.
    """

    def __init__(self, root: Path = Path("/"), notes: Notes | None = None) -> None:
        self.root = root
        self._notes = notes or Notes()

    def text(self, path: str) -> str | None:
        """Return a file's text, ``None`` if it can't be read.

        Args:
            path: Absolute.
        """
        try:
            return (self.root / path.lstrip("/")).read_text(errors="surrogateescape")
        except PermissionError as error:
            kind = _PID.sub("/<pid>/", path)
            self._notes.add(f"files {kind}", f"{kind} can't be read ({error.strerror}): n/a")
        except (OSError, ValueError):
            pass
        return None

    def integer(self, path: str) -> int | None:
        """Return the integer a file holds, ``None`` if it holds none (``max``) or can't be read."""
        text = self.text(path)
        return _integer(text) if text is not None else None

    def keyed(self, path: str) -> dict[str, int]:
        """Return the integers of a file with lines ``key value``."""
        lines = (line.split() for line in (self.text(path) or "").splitlines())
        found = {words[0].rstrip(":"): _integer(words[1]) for words in lines if len(words) >= 2}  # noqa: PLR2004
        return {key: value for key, value in found.items() if value is not None}


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
