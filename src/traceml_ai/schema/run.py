"""A run as the collector knows it, handed to the analysis as plain values."""

from __future__ import annotations

from typing import Literal

import msgspec

from traceml_ai.schema.samples import MachineFacts

PID_SPACE = 1 << 22
"""More than any process id (Linux's largest): the processes of node k are told apart by k times this."""

Status = Literal["running", "completed", "failed", "interrupted", "terminated", "killed"]


class Death(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one training process."""

    pid: int
    status: int | None  # as wait(2) gives it; None: not known
    t_ns: int


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One launch of one command.

    ``start_ns`` and ``end_ns`` are ``perf_counter_ns`` of the host clock, comparable with the step
    records: ``start_ns`` just before the training process was created, ``end_ns`` when it was gone
    (or now, while it runs).
    """

    name: str
    status: Status
    exit_code: int | None
    started_at: str  # ISO 8601, UTC
    start_ns: int
    end_ns: int
    command: list[str]
    traceml_version: str
    machine: MachineFacts | None = None
    exception: str | None = None
    warnings: list[str] = []
    deaths: list[Death] = []  # of training processes, in that order, as far as they were seen
