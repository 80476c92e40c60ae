"""What this process may use of the machine: processors and memory.

The smallest of all limits counts: affinity (which holds cpusets), the control groups' quotas on every
level (a batch system often sets them two or three levels up), and what the batch system says.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import NamedTuple

from traceml_ai.collect.cgroups import UNIFIED, ancestry
from traceml_ai.collect.files import Files
from traceml_ai.schema.samples import MachineFacts

SLURM_CPUS = "SLURM_CPUS_PER_TASK"


class CpuLimit(NamedTuple):
    """A limit on processors and where it comes from."""

    cpus: float
    source: str


def read_machine(
    files: Files,
    environ: Mapping[str, str],
    *,
    host_cpus: int | None = None,
    affinity: int | None = None,
    total_bytes: int | None = None,
) -> MachineFacts:
    """Return what the machine has and what this process may use of it.

    Args:
        files: The file system with ``/proc`` and ``/sys/fs/cgroup``.
        environ: For what the batch system says.
        host_cpus: The machine's processors; asked of the system when not given.
        affinity: Processors this process may run on; asked of the system when not given.
        total_bytes: The machine's memory where ``/proc/meminfo`` does not tell.
    """
    cpus = host_cpus or os.cpu_count() or 1
    usable = usable_cpus(files, environ, host_cpus=cpus, affinity=affinity or own_affinity())
    total = memory_total(files) or total_bytes
    limit = memory_limit(files)
    return MachineFacts(
        host_cpus=cpus,
        usable_cpus=usable.cpus,
        usable_cpus_source=usable.source,
        memory_total_bytes=total,
        # Version 1 writes "no limit" as a huge number.
        memory_limit_bytes=None if limit is None or (total is not None and limit >= total) else limit,
        hostname=socket.gethostname(),
    )


def usable_cpus(
    files: Files, environ: Mapping[str, str], *, host_cpus: int, affinity: int | None
) -> CpuLimit:
    """Return the smallest limit on processors; a quota may be fractional."""
    limits = [CpuLimit(host_cpus, "host")]
    if affinity is not None:
        limits.append(CpuLimit(affinity, "affinity"))
    for quota, source in ((_v2_quota(files), "cgroup v2 quota"), (_v1_quota(files), "cgroup v1 quota")):
        if quota is not None:
            limits.append(CpuLimit(quota, source))
    slurm = _positive(environ.get(SLURM_CPUS))
    if slurm is not None:
        limits.append(CpuLimit(slurm, SLURM_CPUS))
    return min(limits, key=lambda limit: limit.cpus)


def own_affinity() -> int | None:
    """Return how many processors this process may run on, ``None`` where the system has no affinity."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    try:
        return len(os.sched_getaffinity(0))
    except OSError:
        return None


def memory_total(files: Files) -> int | None:
    """Return the machine's memory in bytes, from ``/proc/meminfo``."""
    kib = files.keyed("/proc/meminfo").get("MemTotal")
    return None if kib is None else kib * 1024


def memory_limit(files: Files) -> int | None:
    """Return the smallest memory limit of this process's control groups in bytes, ``None`` without one."""
    paths = [f"{folder}/memory.max" for folder in ancestry(files, UNIFIED)]
    paths += [f"{folder}/memory.limit_in_bytes" for folder in ancestry(files, "memory")]
    return min((limit for path in paths if (limit := files.integer(path)) is not None), default=None)


def _v2_quota(files: Files) -> float | None:
    """Return the smallest ``cpu.max`` up the tree in processors; ``max`` is none."""
    quotas = []
    for folder in ancestry(files, UNIFIED):
        words = (files.text(f"{folder}/cpu.max") or "").split()
        quota, period = (_positive(word) for word in (*words, "", "")[:2])
        if quota and period:
            quotas.append(quota / period)
    return min(quotas, default=None)


def _v1_quota(files: Files) -> float | None:
    """Return the smallest ``cpu.cfs_quota_us`` up the tree in processors; -1 is none."""
    quotas = []
    for folder in ancestry(files, "cpu"):
        quota = files.integer(f"{folder}/cpu.cfs_quota_us")
        period = files.integer(f"{folder}/cpu.cfs_period_us")
        if quota is not None and quota > 0 and period:
            quotas.append(quota / period)
    return min(quotas, default=None)


def _positive(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and int(text) > 0 else None
