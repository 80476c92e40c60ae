"""Where a view gets a run from: the files of its folder and of its spool, nothing else."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import NamedTuple, Protocol

from traceml_ai.errors import TraceMLError, UsageError
from traceml_ai.live.feed import WATCHED_FILE
from traceml_ai.live.output import PREFIX, FileReader, OutputReader
from traceml_ai.live.saved import OUTPUT_FILE
from traceml_ai.live.snapshot import SNAPSHOT_FILE, Snapshot, decode_snapshot
from traceml_ai.schema.summary import Summary, decode
from traceml_ai.spool.runfolder import (
    MANIFEST_FILE,
    SUMMARY_FILE,
    Manifest,
    is_alive,
    read_manifest,
)

_TOUCH_EVERY_S = 1.0
_STALE_S = 4.0


class Reader(Protocol):
    """Follows what a program prints."""

    lost: int

    def read(self, most: int = ...) -> bytes:
        """Return the next bytes; empty: there are none yet."""

    def skip_to_last(self, most: int) -> None:
        """Leave out all but the last bytes."""


class Output(NamedTuple):
    """What a program prints, or why that can't be seen."""

    reader: Reader | None
    why_not: str = ""


class _Seen(NamedTuple):
    """A file as it was last read."""

    stamp: tuple[int, int]
    snapshot: Snapshot | None


class Source:
    """A run that goes on, or is over.

    Args:
        folder: Its run folder.

    Raises:
        UsageError: It is none.
    """

    def __init__(self, folder: Path) -> None:
        if not (folder / MANIFEST_FILE).exists():
            raise UsageError(
                f"{folder} is no run folder (no {MANIFEST_FILE} in it): name one, as logs/<run-name>"
            )
        self.folder = folder
        self.manifest: Manifest = read_manifest(folder)
        self._touched = 0.0
        self._seen: dict[Path, _Seen] = {}

    @property
    def spool(self) -> Path | None:
        """The spool folder, while there is one that this user may read."""
        if self.manifest.spool is None:
            return None
        spool = Path(self.manifest.spool)
        try:
            return spool if spool.is_dir() else None
        except OSError:
            return None

    def is_running(self) -> bool:
        """Whether the run has not ended: its launcher lives and has not written the final summary."""
        summary = self._summary()
        if summary is not None and summary.status != "running":
            return False
        return is_alive(self.manifest.launcher_pid, self.manifest.launcher_birth) or is_alive(
            self.manifest.child_pid, self.manifest.child_birth
        )

    def snapshot(self) -> Snapshot | None:
        """Return the newest there is; ``None``: nothing yet. Says to the collector that somebody looks."""
        self._touch()
        final = self._summary()
        if final is not None and final.status != "running":
            return final
        live = self._live()
        return live if live is not None else final

    def is_stale(self, snapshot: Snapshot, now_s: float | None = None) -> bool:
        """Whether a snapshot of a running run is so old that nobody can be making them."""
        if snapshot.status != "running" or snapshot.now is None:
            return False
        age_s = (time.time() if now_s is None else now_s) - snapshot.taken_at
        return age_s > _STALE_S and not is_alive(self.manifest.launcher_pid, self.manifest.launcher_birth)

    def output(self) -> Output:
        """Return how to follow what the program prints."""
        spool = self.spool
        if spool is not None and any(spool.glob(f"{PREFIX}*")):
            return Output(OutputReader(spool))
        saved = self.folder / OUTPUT_FILE
        if saved.exists():
            return Output(FileReader(saved))
        redirected = _redirected_to(self.manifest.child_pid) if self.is_running() else None
        if redirected is not None:
            return Output(FileReader(redirected))
        return Output(None, "This run prints to the terminal or pipe it was started with, "
                            "which can't be followed from here.")  # fmt: skip

    def _touch(self) -> None:
        now = time.monotonic()
        if now - self._touched < _TOUCH_EVERY_S or self.spool is None:
            return
        self._touched = now
        with contextlib.suppress(OSError):
            (self.spool / WATCHED_FILE).touch()

    def _live(self) -> Snapshot | None:
        return self._read(self.spool / SNAPSHOT_FILE, decode_snapshot) if self.spool is not None else None

    def _summary(self) -> Snapshot | None:
        return self._read(self.folder / SUMMARY_FILE, self._of_summary)

    def _of_summary(self, data: bytes) -> Snapshot | None:
        try:
            summary: Summary = decode(data, source=str(self.folder / SUMMARY_FILE))
        except TraceMLError:
            return None
        return Snapshot(
            taken_at=time.time(), name=summary.run.name, status=summary.run.status, now=None, summary=summary
        )

    def _read(self, path: Path, make: _Maker) -> Snapshot | None:
        try:
            found = path.stat()
            stamp = (found.st_mtime_ns, found.st_ino)
            seen = self._seen.get(path)
            if seen is None or seen.stamp != stamp:
                self._seen[path] = seen = _Seen(stamp, make(path.read_bytes()))
        except OSError:
            return None
        return seen.snapshot


class _Maker(Protocol):
    def __call__(self, data: bytes, /) -> Snapshot | None: ...


def _redirected_to(pid: int | None) -> Path | None:
    """Return the plain file that a process's standard output goes to, if it does."""
    if pid is None or sys.platform != "linux":
        return None
    try:
        path = Path(f"/proc/{pid}/fd/1").readlink()
        return path if path.is_file() else None
    except OSError:
        return None
