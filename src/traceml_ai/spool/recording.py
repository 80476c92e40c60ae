"""Where a run is recorded: the run folder for its files, the spool for the step log; failing open."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

import traceml_ai
from traceml_ai.errors import UsageError
from traceml_ai.spool import layout
from traceml_ai.spool.place import MEMORY, candidates, make_spool
from traceml_ai.spool.runfolder import (
    Manifest,
    birth_of,
    check_name,
    create_named,
    create_unnamed,
    unique_name,
)

_SUMMARY_BYTES = 1 << 17
"""A summary and its card, and some of the steps."""


class Plan(NamedTuple):
    """How a run is to be recorded."""

    logs: Path
    run_name: str | None  # None: a name of our own
    stem: str  # what our own name begins with
    command: list[str]
    interval_s: float


class Recording(NamedTuple):
    """Where a run is recorded."""

    folder: Path | None  # None: nowhere, only the card will be shown
    manifest: Manifest
    problems: list[str]  # what could not be had, for the user and the summary

    @property
    def spool(self) -> Path | None:
        """The folder of the step log; ``None``: the run is not measured."""
        return None if self.manifest.spool is None else Path(self.manifest.spool)

    @property
    def measured(self) -> bool:
        """Whether there is something to look at while the run goes on."""
        return self.folder is not None and self.spool is not None

    def started(self, child_pid: int, start_ns: int) -> Recording:
        """Return the recording of a run whose process was created."""
        birth = birth_of(child_pid)
        started = self.manifest._replace(child_pid=child_pid, child_birth=birth, start_ns=start_ns)
        return self._replace(manifest=started)

    def discard(self) -> None:
        """Remove the folders: nothing was started."""
        remove(self.spool)
        remove(self.folder)


def open_recording(
    plan: Plan,
    *,
    spool_places: Callable[[Path], Iterator[Path]] = candidates,
    elsewhere: Callable[[str], Path] | None = None,
) -> Recording:
    """Make the folders of a run, somewhere else than planned if need be.

    Args:
        plan: What the user wants.
        spool_places: Where the spool may be, given the logs folder.
        elsewhere: Makes a folder for a run of that name when its own can't be written to.

    Raises:
        UsageError: The run name is taken, or no folder name.
    """
    now = datetime.now().astimezone()
    name = plan.run_name or unique_name(plan.stem, now)
    check_name(name)
    spool, refused = make_spool(spool_places(plan.logs))
    manifest = _manifest(plan, name, now, spool)
    try:
        recording = _first_writable(
            manifest, [lambda: _planned(plan, now), lambda: (elsewhere or temporary_folder)(name)]
        )
    except UsageError:
        remove(spool)
        raise
    if spool is None:
        why = "; ".join(f"{place.folder} is {place.refused}" for place in refused)
        recording.problems.append(f"there is no place for the step log ({why}): steps are not measured")
    return recording


def temporary_folder(name: str) -> Path:
    """Make a private folder for a run's files among the temporary ones; in memory, where those are full.

    Raises:
        OSError: There is no place for it.
    """
    import tempfile

    try:
        return _folder_with_room(None, name)
    except OSError:
        if not MEMORY.is_dir() or tempfile.gettempdir() == str(MEMORY):
            raise
        return _folder_with_room(MEMORY, name)


def _folder_with_room(parent: Path | None, name: str) -> Path:
    """Make a folder that takes a summary, for sure.

    Raises:
        OSError: It does not.
    """
    import tempfile

    outer = Path(tempfile.mkdtemp(prefix="traceml-", dir=parent))
    try:
        folder = outer / name
        folder.mkdir()
        tried = folder / ".room"
        tried.write_bytes(bytes(_SUMMARY_BYTES))
        tried.unlink()
    except OSError:
        remove(outer)
        raise
    return folder


def remove(folder: Path | None) -> None:
    """Remove a folder of ours with all that is in it, if it can be."""
    if folder is not None:
        import shutil

        for path in folder.glob("*.tlog"):
            with contextlib.suppress(OSError):
                layout.discard(str(path))
        shutil.rmtree(folder, ignore_errors=True)


def _first_writable(manifest: Manifest, makers: list[Callable[[], Path]]) -> Recording:
    """Put the manifest into the first folder that can be made and written to."""
    reasons: list[str] = []
    for make in makers:
        folder = None
        try:
            folder = make()
            named = manifest._replace(name=folder.name)
            named.write(folder)
        except OSError as error:
            remove(folder)
            reasons.append(f"can't write to {error.filename or folder} ({error.strerror or error})")
        else:
            problems = [f"{reasons[0]}: recording to {folder}"] if reasons else []
            return Recording(folder, named, problems)
    problem = f"{reasons[0]}, nor to a temporary folder: only the card will be shown"
    return Recording(None, manifest, [problem])


def _planned(plan: Plan, now: datetime) -> Path:
    if plan.run_name is not None:
        return create_named(plan.logs, plan.run_name)
    return create_unnamed(plan.logs, plan.stem, now)


def _manifest(plan: Plan, name: str, now: datetime, spool: Path | None) -> Manifest:
    return Manifest(
        name=name,
        traceml_version=traceml_ai.__version__,
        command=plan.command,
        cwd=_working_directory(),
        spool=None if spool is None else str(spool),
        started_at=now.astimezone(timezone.utc).isoformat(timespec="seconds"),
        start_ns=0,
        interval_s=plan.interval_s,
        hostname=os.uname().nodename if hasattr(os, "uname") else "",
        uid=os.getuid() if hasattr(os, "getuid") else None,
        launcher_pid=os.getpid(),
        launcher_birth=birth_of(os.getpid()),
    )


def _working_directory() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # it was removed under us
        return ""
