"""Which control groups this process is in, from its own up to the root of what can be seen.

Sources: cgroups(7), proc_pid_mountinfo(5), the kernel's cgroup-v1 and cgroup-v2 guides.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import NamedTuple

from traceml_ai.collect.files import Files

UNIFIED = ""
"""The name of the one hierarchy of version 2, which has no controller's name."""


class Mount(NamedTuple):
    """A mounted hierarchy: the part of it that is visible, and where."""

    controllers: frozenset[str]  # holds `UNIFIED` for version 2
    top: PurePosixPath  # the group that is at the mount point
    point: PurePosixPath


def ancestry(files: Files, controller: str) -> list[PurePosixPath]:
    """Return the folders of this process's group and its ancestors, innermost first.

    Args:
        files: The file system.
        controller: A version 1 controller (``cpu``, ``memory``) or `UNIFIED`.

    Returns:
        Absolute folders; empty when there is no such hierarchy or it can't be seen.
    """
    path = _own_groups(files).get(controller)
    mount = next((found for found in mounts(files) if controller in found.controllers), None)
    if path is None or mount is None:
        return []
    group = _below(path, mount.top)
    return [mount.point / group, *(mount.point / parent for parent in group.parents if group.parts)]


def mounts(files: Files) -> list[Mount]:
    """Return the mounted cgroup hierarchies."""
    found = []
    for line in (files.text("/proc/self/mountinfo") or "").splitlines():
        left, _, right = line.partition(" - ")
        before, after = left.split(), right.split()
        if after[:1] == ["cgroup2"]:
            controllers = frozenset({UNIFIED})
        elif after[:1] == ["cgroup"]:
            controllers = frozenset(after[-1].split(","))
        else:
            continue
        found.append(Mount(controllers, PurePosixPath(before[3]), PurePosixPath(before[4])))
    return found


def _own_groups(files: Files) -> dict[str, PurePosixPath]:
    """Return the path of this process's group by controller."""
    groups = {}
    for line in (files.text("/proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            groups[controller] = PurePosixPath(path)
    return groups


def _below(path: PurePosixPath, top: PurePosixPath) -> PurePosixPath:
    """Return a group's path relative to the mount point.

    A container that shares the host's cgroup namespace sees the host's path in ``/proc/self/cgroup``
    but its own group at the mount point.
    """
    if path.is_relative_to(top):
        return path.relative_to(top)
    if top == PurePosixPath("/") and ".." not in path.parts:
        return path.relative_to("/")
    return PurePosixPath()
