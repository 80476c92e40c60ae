"""The lists of numbers in ``final_summary.json``: a run over time, and how its steps are distributed.

All of bounded length, whatever the length of the run. Times of steps are the host clock's.
"""

from __future__ import annotations

import msgspec


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Step time over the whole run, first step to last, in at most about 120 points."""

    first_step: list[int] = []  # index of the first step of each point
    steps: list[int] = []  # steps in each point
    mean_ms: list[float | None] = []
    max_ms: list[float | None] = []
    phases: dict[str, list[float | None]] = {}  # each observed phase's mean ms; between_steps too


class Histogram(msgspec.Struct, frozen=True, kw_only=True):
    """How long steady steps took: ``counts[i]`` of them from ``edges_ms[i]`` to ``edges_ms[i + 1]``."""

    edges_ms: list[float] = []  # one more than counts; wider towards the long end
    counts: list[int] = []


class Blocks(msgspec.Struct, frozen=True, kw_only=True):
    """Means of consecutive steady steps, for comparing runs of autocorrelated steps."""

    steps_per_block: int = 0  # 0: none
    phases: dict[str, list[float | None]] = {}  # "step", each phase and "between_steps", in ms


class MemorySeries(msgspec.Struct, frozen=True, kw_only=True):
    """Peak device memory over the whole run, in at most about 120 points."""

    first_step: list[int] = []
    peak_allocated_bytes: list[int] = []
    peak_reserved_bytes: list[int] = []


class SystemSeries(msgspec.Struct, frozen=True, kw_only=True):
    """The host over the whole run, in at most about 120 points."""

    at_s: list[float] = []  # since the start of the run
    cpu_pct: list[float | None] = []
    used_bytes: list[int | None] = []


class ProcessSeries(msgspec.Struct, frozen=True, kw_only=True):
    """The training process and its loader workers over the whole run, in at most about 120 points."""

    at_s: list[float] = []  # since the start of the run
    main_cpu_cores: list[float | None] = []  # busy since the point before
    workers_cpu_cores: list[float | None] = []
    main_rss_bytes: list[int | None] = []
    workers_pss_bytes: list[int | None] = []
