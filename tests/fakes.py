"""Doubles that stand for the real thing in tests: synthetic step records, headers and samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from traceml_ai.analyze.aggregate import RankAggregate
from traceml_ai.diagnose.signals import RankInput
from traceml_ai.schema.facts import ProcessFacts
from traceml_ai.schema.run import RunInfo, Status
from traceml_ai.schema.samples import HostSample, MachineFacts
from traceml_ai.schema.step import COLUMNS, INDEX, N_COLUMNS, Flags, Observed

MS = 1_000_000
SECOND = 1_000_000_000
START_NS = 5 * SECOND
FIRST_BEGIN_NS = 8 * SECOND

NO_FLAGS = Flags(0)
SEEN = Observed.INPUT | Observed.FORWARD | Observed.BACKWARD | Observed.OPTIMIZER | Observed.SAMPLES

_OVERLAPPING = ("gc_ns", "comm_ns", "arrival_ns")
EXCLUSIVE = [
    INDEX[name]
    for name in COLUMNS
    if name.endswith("_ns")
    and not name.startswith("dev_")
    and name not in ("begin_ns", "open_ns", "close_ns", *_OVERLAPPING)
]

# An ordinary small step: 10.1 ms, nearly all of it computing.
ORDINARY_MS = {
    "input_wait": 0.3,
    "forward": 3.0,
    "backward": 5.0,
    "optimizer": 1.5,
    "residual_other": 0.3,
    "between_other": 0.1,
    "own": 0.012,
}


class Header(NamedTuple):
    """The counters of a step log's header."""

    pid: int = 4242
    rank: int = -1
    aborted: int = 0
    dropped: int = 0


class Run:
    """Builds the records of one training process, step by step or many at once.

    Durations are given in milliseconds by column name without ``_ns``, as numbers or as one number
    per step; what is not given is taken from ``ORDINARY_MS``. Every duration gets one percent of
    jitter, so that no statistic sees two equal values.
    """

    def __init__(self, *, jitter: float = 0.01, seed: int = 1) -> None:
        self._rng = np.random.default_rng(seed)
        self._jitter = jitter
        self._blocks: list[NDArray[np.int64]] = []
        self._now_ns = FIRST_BEGIN_NS
        self._steps = 0

    def steps(
        self,
        n: int,
        *,
        observed: Observed | Sequence[Observed] = SEEN,
        flags: Flags | Sequence[Flags] = NO_FLAGS,
        counts: dict[str, Any] | None = None,
        **ms: Any,
    ) -> Run:
        """Append ``n`` steps."""
        block = np.zeros((n, N_COLUMNS), dtype=np.int64)
        for name, value in {**ORDINARY_MS, **ms}.items():
            spread = 1 + self._jitter * self._rng.standard_normal(n)
            block[:, INDEX[f"{name}_ns"]] = np.asarray(value, dtype=float) * MS * np.maximum(spread, 0)
        for name, value in {"samples": 8, "updates": 1, "microbatches": 1, **(counts or {})}.items():
            block[:, INDEX[name]] = value
        block[:, INDEX["observed"]] = [int(bits) for bits in _each(observed, n)]
        block[:, INDEX["flags"]] = [int(bits) for bits in _each(flags, n)]
        self._close(block)
        return self

    def tail(self, **ms: float) -> Run:
        """Append the record of what followed the last step."""
        block = np.zeros((1, N_COLUMNS), dtype=np.int64)
        for name, value in ms.items():
            block[:, INDEX[f"{name}_ns"]] = int(value * MS)
        block[:, INDEX["flags"]] = int(Flags.TAIL)
        self._close(block)
        return self

    def pause(self, ms: float) -> Run:
        """Let time pass that no record holds."""
        self._now_ns += int(ms * MS)
        return self

    def _close(self, block: NDArray[np.int64]) -> None:
        if self._steps == 0 and len(block):
            # What came before the first step's own work is start-up.
            block[0, INDEX["between_other_ns"]] = 0
        lengths = block[:, EXCLUSIVE].sum(axis=1)
        block[:, INDEX["close_ns"]] = self._now_ns + np.cumsum(lengths)
        block[:, INDEX["begin_ns"]] = block[:, INDEX["close_ns"]] - lengths
        block[:, INDEX["open_ns"]] = block[:, INDEX["begin_ns"]] + block[:, INDEX["input_wait_ns"]]
        block[:, INDEX["step"]] = self._steps + np.arange(len(block))
        block[:, INDEX["global_step"]] = -1
        self._now_ns += int(lengths.sum())
        self._steps += len(block)
        self._blocks.append(block)

    @property
    def now_ns(self) -> int:
        """When the last record closed."""
        return self._now_ns

    def records(self) -> NDArray[np.int64]:
        """Return all records."""
        return np.concatenate(self._blocks) if self._blocks else np.zeros((0, N_COLUMNS), dtype=np.int64)

    def rank(self, *, header: Header | None = None, **facts: Any) -> RankInput:
        """Return what a collector would hand over for this process."""
        aggregate = RankAggregate()
        aggregate.add(self.records())
        known: ProcessFacts = {"torch_threads": 1, "mode": "marked", **facts}  # type: ignore[typeddict-item]
        return RankInput(aggregate, known, header or Header())

    def info(
        self, *, status: Status = "completed", shutdown_ms: float = 200.0, usable_cpus: float = 2.0
    ) -> RunInfo:
        """Return the launch that this process belongs to."""
        return run_info(status=status, end_ns=self._now_ns + int(shutdown_ms * MS), usable_cpus=usable_cpus)


def _each(value: Any, n: int) -> Sequence[Any]:
    return [value] * n if isinstance(value, (Observed, Flags)) else value


def run_info(*, status: Status = "completed", end_ns: int = 20 * SECOND, usable_cpus: float = 2.0) -> RunInfo:
    """Return a launch that began at ``START_NS``."""
    return RunInfo(
        name="test",
        status=status,
        exit_code=0,
        started_at="2026-01-02T03:04:05Z",
        start_ns=START_NS,
        end_ns=end_ns,
        command=["python", "train.py"],
        traceml_version="0.1.0",
        machine=MachineFacts(
            host_cpus=8,
            usable_cpus=usable_cpus,
            usable_cpus_source="affinity",
            memory_total_bytes=64 << 30,
            memory_limit_bytes=None,
            hostname="box",
        ),
    )


def sample(t_ns: int, **values: Any) -> HostSample:
    """Return a sample of an idle process of 400 MB on a quiet host, changed by ``values``."""
    known: dict[str, Any] = {
        "pid": 4242,
        "main_cpu_s": t_ns / SECOND,
        "main_rss_bytes": 400 << 20,
        "workers": 0,
        "workers_cpu_s": None,
        "workers_pss_bytes": None,
        "host_cpu_pct": 20.0,
        "host_used_bytes": 8 << 30,
        "host_total_bytes": 64 << 30,
    }
    return HostSample(t_ns=t_ns, **{**known, **values})


def samples_over(run: Run, n: int, **series: Any) -> list[HostSample]:
    """Return ``n`` samples from the first step to the last, with one value per sample or one for all."""
    times = np.linspace(FIRST_BEGIN_NS, run.now_ns, n).astype(int)
    return [
        sample(int(t), **{name: value[i] if _is_series(value) else value for name, value in series.items()})
        for i, t in enumerate(times)
    ]


def _is_series(value: Any) -> bool:
    return isinstance(value, (list, np.ndarray))
