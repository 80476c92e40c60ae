"""Spool folders that nobody removed: their collector was killed, or the machine stopped."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

from traceml_ai.spool.place import SPOOL_PREFIX
from traceml_ai.spool.recording import remove

KEEP_S = 3 * 24 * 3600.0
"""How long a dead run's step log stays for ``traceml view``."""


def clean_leftovers(
    parents: Iterable[Path], *, now_s: float | None = None, proc: Path = Path("/proc"), uid: int | None = None
) -> list[Path]:
    """Remove old spool folders of this user whose processes are gone.

    Args:
        parents: Folders that spool folders are made in.
        now_s: The time, seconds since the epoch.
        proc: Where processes can be looked up.
        uid: This user.

    Returns:
        What was removed.
    """
    owner = uid if uid is not None else getattr(os, "getuid", lambda: None)()
    oldest = (time.time() if now_s is None else now_s) - KEEP_S
    removed = []
    for parent in parents:
        for folder in _spools(parent):
            if _is_dead(folder, owner, oldest, proc):
                remove(folder)
                removed.append(folder)
    return removed


def _spools(parent: Path) -> list[Path]:
    try:
        with os.scandir(parent) as entries:
            return [
                parent / entry.name
                for entry in entries
                if entry.name.startswith(SPOOL_PREFIX) and entry.is_dir(follow_symlinks=False)
            ]
    except OSError:
        return []


def _is_dead(folder: Path, owner: int | None, oldest: float, proc: Path) -> bool:
    """Whether a spool folder is ours, was not touched for long, and none of its writers lives.

    The collector touches it with every summary, so one that serves a run elsewhere (another container
    with the same /dev/shm, whose processes can't be seen from here) is never old.
    """
    try:
        found = folder.lstat()
    except OSError:
        return False
    if (owner is not None and found.st_uid != owner) or found.st_mtime > oldest:
        return False
    return not any((proc / str(pid)).exists() for pid in _writers(folder))


def _writers(folder: Path) -> set[int]:
    pids = set()
    for path in folder.glob("*-*"):
        with contextlib.suppress(ValueError):
            pids.add(int(path.name.split("-")[1].partition(".")[0]))
    return pids
