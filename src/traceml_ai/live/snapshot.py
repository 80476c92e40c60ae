"""What a view shows: one immutable value, made beside the collector, written for whoever looks.

A view only draws it. It holds the newest summary, which is analysed again every few seconds, and what
is cheap enough to bring up to date twice a second: counts, the last steps, the ranks, the samples.
"""

from __future__ import annotations

import msgspec

from traceml_ai.schema.run import Status
from traceml_ai.schema.summary import Summary

SNAPSHOT_FILE = "live.msgpack"
SNAPSHOT_VERSION = 1


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """Step time over the whole run in a bounded number of points."""

    first_step: list[int] = []
    mean_ms: list[float] = []
    max_ms: list[float] = []


class RankNow(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One rank over the last seconds."""

    rank: int | None = None
    pid: int | None = None
    steps: int = 0  # since its start
    step_ms: float | None = None
    input_wait_ms: float | None = None


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """The last samples of memory; one list entry a sample, oldest first."""

    at_s: list[float] = []  # since the start of the run
    main_rss_bytes: list[int | None] = []  # of all training processes of this node
    workers_pss_bytes: list[int | None] = []
    peak_allocated_bytes: int | None = None  # of the device, over the last seconds
    peak_reserved_bytes: int | None = None


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The host and the run's processes at the last sample."""

    host_cpu_pct: float | None = None
    host_used_bytes: int | None = None
    host_total_bytes: int | None = None
    busy_cores: float | None = None  # of the training processes and their workers
    usable_cpus: float | None = None
    workers: int | None = None


class Now(msgspec.Struct, frozen=True, kw_only=True):
    """The last seconds of a run."""

    elapsed_s: float
    steps: int = 0  # of the first rank, since its start
    window_steps: int = 0  # steps behind the figures of the window; 0: no step closed in it
    window_s: float | None = None
    step_ms: float | None = None
    phases_ms: dict[str, float | None] = {}  # a step; None: not observed
    between_ms: float | None = None
    steps_per_sec: float | None = None
    samples_per_sec: float | None = None
    curve: Curve = Curve()
    ranks: list[RankNow] = []
    memory: Memory = Memory()
    machine: Machine = Machine()


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A run at one moment."""

    version: int = SNAPSHOT_VERSION
    taken_at: float  # seconds since the epoch
    name: str
    status: Status = "running"
    now: Now | None = None  # None: only a summary was there to read
    summary: Summary | None = None  # None: the run is too young for one


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Write a snapshot."""
    return msgspec.msgpack.encode(snapshot)


def decode_snapshot(data: bytes) -> Snapshot | None:
    """Read a snapshot; ``None``: it is not one that this version writes."""
    try:
        snapshot = msgspec.msgpack.decode(data, type=Snapshot)
    except (msgspec.DecodeError, RecursionError):
        return None
    return snapshot if snapshot.version == SNAPSHOT_VERSION else None
