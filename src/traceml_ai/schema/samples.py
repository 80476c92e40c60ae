"""Counters sampled outside the training process, once per interval."""

from __future__ import annotations

from typing import NamedTuple


class HostSample(NamedTuple):
    """One look at a training process, its children and the host. ``None``: could not be read."""

    t_ns: int  # perf_counter_ns of the collector, the same clock as the step records
    pid: int
    main_cpu_s: float | None  # user + system, cumulative
    main_rss_bytes: int | None
    workers: int  # live descendants of the training process
    workers_cpu_s: float | None  # cumulative, of the live ones
    workers_pss_bytes: int | None  # PSS where the kernel gives it, else RSS minus shared
    host_cpu_pct: float | None  # of all the host's processors
    host_used_bytes: int | None
    host_total_bytes: int | None


class MachineFacts(NamedTuple):
    """What this process may use of the machine, read once at start."""

    host_cpus: int
    usable_cpus: float  # min of affinity and cgroup quota; may be fractional
    usable_cpus_source: str  # "affinity", "cgroup v2 quota", "SLURM_CPUS_PER_TASK", "host"
    memory_total_bytes: int | None
    memory_limit_bytes: int | None  # smallest limit up the cgroup tree, None: no limit
    hostname: str
