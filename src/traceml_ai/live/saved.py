"""Copies what a program printed behind a view from the spool to its run folder, beside the collector."""

from __future__ import annotations

from pathlib import Path

from traceml_ai.live.output import OutputReader

OUTPUT_FILE = "output.log"
MOST_BYTES = 256 << 20
_PIECE = 1 << 20


class Saver:
    """Keeps ``output.log`` up to date, byte by byte what the program printed.

    Args:
        spool: Where the output comes from.
        folder: The run folder.
        most: Stop at this size.
    """

    def __init__(self, spool: Path, folder: Path, *, most: int = MOST_BYTES) -> None:
        self._reader = OutputReader(spool)
        self._path = folder / OUTPUT_FILE
        self._most = most
        self._lost = 0
        self._full = False

    def copy(self) -> None:
        """Append what is new.

        Raises:
            OSError: The run folder can't be written to.
        """
        while not self._full and (data := self._reader.read(_PIECE)):
            if self._reader.lost > self._lost:
                self._append(
                    self._remark(f"{self._reader.lost - self._lost:,} bytes came too fast to be kept")
                )
                self._lost = self._reader.lost
            self._append(data)
            if self._reader.offset >= self._most:
                self._append(self._remark(f"the rest is left out: {self._most >> 20} MiB are reached"))
                self._full = True

    def _append(self, data: bytes) -> None:
        with self._path.open("ab") as file:
            file.write(data)

    @staticmethod
    def _remark(text: str) -> bytes:
        return f"\n[traceml: {text}]\n".encode()
