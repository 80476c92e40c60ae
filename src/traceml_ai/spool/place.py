"""Where the spool folder goes: memory or a local disk, with room, never a network file system."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

SPOOL_PREFIX = "traceml-spool-"

ROOM_BYTES = 128 << 20
"""Free space a place must have: the 64 MiB a container engine gives /dev/shm belong to the loader workers."""

MEMORY = Path("/dev/shm")  # noqa: S108 -- the folder made in it is private
_NETWORK = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "fhgfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs"}
    | {"nfs4", "ocfs2", "panfs", "smb2", "smb3", "smbfs", "wekafs"}
)


class Place(NamedTuple):
    """One folder that could hold the spool."""

    folder: Path
    free_bytes: int | None
    filesystem: str | None  # None: not known
    refused: str | None  # why it can't be used; None: it can


def candidates(logs: Path | None = None) -> Iterator[Path]:
    """Yield where to look, best first; a generator since finding the later ones costs time.

    Args:
        logs: The folder of the run folders, the last resort.
    """
    if sys.platform == "linux":
        yield MEMORY
    import tempfile

    with contextlib.suppress(OSError):  # not even a temporary folder
        yield Path(tempfile.gettempdir())
    if logs is not None:
        yield logs


def judge(folder: Path, *, mountinfo: Path = Path("/proc/self/mountinfo"), room: int = ROOM_BYTES) -> Place:
    """Say whether a folder can hold the spool, and why not."""
    if not folder.is_dir():
        return Place(folder, None, None, "there is no such folder")
    free, kind = _free_bytes(folder), filesystem_of(folder, mountinfo)
    refused = None
    if not os.access(folder, os.W_OK | os.X_OK):
        refused = "not writable"
    elif kind is not None and is_network(kind):
        refused = f"on a network file system ({kind})"
    elif free is not None and free < room:
        refused = f"only {free >> 20} MiB free, {room >> 20} needed"
    return Place(folder, free, kind, refused)


def make_spool(
    places: Iterator[Path], *, judge: Callable[[Path], Place] = judge
) -> tuple[Path | None, list[Place]]:
    """Create a private spool folder in the first place that can hold it.

    Returns:
        The folder, or ``None`` when there is no such place, and the places that were refused.
    """
    refused: list[Place] = []
    for candidate in places:
        place = judge(candidate)
        if place.refused is None:
            try:
                return _private_folder(candidate), refused
            except OSError as error:
                place = place._replace(refused=error.strerror or str(error))
        refused.append(place)
    return None, refused


def is_network(filesystem: str) -> bool:
    """Whether a file system of this type lives on another machine; FUSE is taken for one."""
    return filesystem in _NETWORK or filesystem == "fuse" or filesystem.startswith("fuse.")


def filesystem_of(folder: Path, mountinfo: Path) -> str | None:
    """Return the type of the file system a folder lies on, ``None`` where the kernel does not tell.

    Source: proc_pid_mountinfo(5); the last mount of the longest matching mount point is on top.
    """
    try:
        lines = mountinfo.read_text(errors="surrogateescape").splitlines()
        resolved = folder.resolve()
    except OSError:
        return None
    best: tuple[int, str | None] = (-1, None)
    for line in lines:
        left, _, right = line.partition(" - ")
        point = _unescape(left.split()[4])
        if resolved.is_relative_to(point) and len(point) >= best[0]:
            best = (len(point), right.split()[0])
    return best[1]


def _private_folder(parent: Path) -> Path:
    folder = parent / f"{SPOOL_PREFIX}{os.urandom(8).hex()}"
    folder.mkdir(mode=0o700)
    return folder


def _free_bytes(folder: Path) -> int | None:
    try:
        found = os.statvfs(folder)
    except (AttributeError, OSError):  # Windows has no statvfs
        return None
    return found.f_bavail * found.f_frsize


def _unescape(point: str) -> str:
    """Undo the octal escapes of spaces and the like in a mount point."""
    return point.encode("latin-1", "replace").decode("unicode_escape") if "\\" in point else point
