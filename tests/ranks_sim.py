"""A synchronous job of several ranks, simulated: what each does, and what it then waits for the others."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fakes import FIRST_BEGIN_NS, MS, SEEN, Header, run_info, sample
from traceml_ai.analyze.aggregate import RankAggregate
from traceml_ai.analyze.ranks import RankPart
from traceml_ai.analyze.steady import steady_part
from traceml_ai.diagnose.signals import RankInput
from traceml_ai.diagnose.summarize import summarize
from traceml_ai.schema.step import COMM_PLACES, INDEX, N_COLUMNS, Observed, pack_comm_split
from traceml_ai.schema.summary import Summary

Ints = NDArray[np.int64]

ORDINARY_MS = {
    "input_wait": 0.3,
    "forward": 3.0,
    "backward": 5.0,
    "optimizer": 1.5,
    "residual_other": 0.3,
    "between_other": 0.1,
}
_BEFORE = ("between_other", "input_wait", "residual_other", "forward", "backward")
_BACKWARD = COMM_PLACES.index("backward")


class Job(NamedTuple):
    """The records of each rank, shape ``(ranks, steps, 48)``."""

    records: Ints

    def aggregates(self) -> list[RankAggregate]:
        return [_aggregate(each) for each in self.records]

    def parts(self) -> list[RankPart]:
        return [RankPart(each, steady_part(each)) for each in self.aggregates()]

    def inputs(self, **facts: Any) -> list[RankInput]:
        world = len(self.records)
        return [
            RankInput(
                each,
                {"rank": rank, "world_size": world, "torch_threads": 1, "mode": "inferred", **facts},  # type: ignore[typeddict-item]
                Header(pid=100 + rank, rank=rank),
            )
            for rank, each in enumerate(self.aggregates())
        ]

    def summary(self, *, host_cpu_pct: float = 20.0, own_cores: float = 1.0, **facts: Any) -> Summary:
        end = int(self.records[:, -1, INDEX["close_ns"]].max()) + 200 * MS
        samples = [
            sample(t, pid=100, host_cpu_pct=host_cpu_pct, main_cpu_s=own_cores * t / 1e9)
            for t in range(FIRST_BEGIN_NS, end, 50 * MS)
        ]
        return summarize(run_info(end_ns=end), self.inputs(**facts), samples[:50])

    def with_only(self, rank: int, steps: int) -> list[RankInput]:
        """The inputs, with one rank that made only its first steps."""
        inputs = self.inputs()
        inputs[rank] = inputs[rank]._replace(aggregate=_aggregate(self.records[rank, :steps]))
        return inputs


def _aggregate(records: Ints) -> RankAggregate:
    aggregate = RankAggregate()
    aggregate.add(records)
    return aggregate


def simulate(
    ranks: int,
    steps: int,
    *,
    transfer_ms: float = 0.5,
    jitter: float = 0.01,
    measured: bool = True,
    seed: int = 1,
    **ms: Any,
) -> Job:
    """Simulate a data-parallel job.

    Args:
        ranks: Ranks.
        steps: Steps of each.
        transfer_ms: What the all-reduce takes once every rank is there.
        jitter: Relative spread of every duration.
        measured: Whether waiting was measured.
        seed: Of the jitter.
        ms: Durations in milliseconds by column, broadcast to ``(ranks, steps)``.
    """
    rng = np.random.default_rng(seed)
    columns = {}
    for name, usual in {**ORDINARY_MS, **{k: 0.0 for k in ms if k not in ORDINARY_MS}}.items():
        spread = 1 + jitter * rng.standard_normal((ranks, steps))
        columns[name] = np.broadcast_to(ms.get(name, usual), (ranks, steps)) * np.abs(spread) * MS
    records = np.zeros((ranks, steps, N_COLUMNS), dtype=np.int64)
    now = np.full(ranks, float(FIRST_BEGIN_NS))
    for step in range(steps):
        begin = now.copy()
        part = {name: values[:, step] for name, values in columns.items()}
        after = [name for name in part if name not in _BEFORE and name != "optimizer"]
        arrival = begin + sum(part[name] for name in (*_BEFORE, *after))
        leave = arrival.max() + transfer_ms * MS
        stood = (leave - arrival).astype(np.int64)
        for name, values in part.items():
            records[:, step, INDEX[f"{name}_ns"]] = values
        records[:, step, INDEX["backward_ns"]] += stood
        if measured:
            records[:, step, INDEX["comm_ns"]] = stood
            records[:, step, INDEX["arrival_ns"]] = arrival
            split = [0] * len(COMM_PLACES)
            for rank in range(ranks):
                split[_BACKWARD] = int(stood[rank])
                records[rank, step, INDEX["comm_split"]] = pack_comm_split(split, int(stood[rank]))
        now = leave + part["optimizer"]
        records[:, step, INDEX["close_ns"]] = now
        records[:, step, INDEX["begin_ns"]] = begin
        records[:, step, INDEX["open_ns"]] = begin + part["between_other"] + part["input_wait"]
        records[:, step, INDEX["step"]] = step
    for name, value in {
        "microbatches": 1,
        "updates": 1,
        "samples": 8,
        "fetches": 1,
        "global_step": -1,
    }.items():
        records[:, :, INDEX[name]] = value
    records[:, :, INDEX["observed"]] = int(SEEN | (Observed.COMM if measured else Observed(0)))
    return Job(records)


def late(ranks: int, steps: int, rank: int, ms: float, usual: float) -> NDArray[np.float64]:
    """One rank takes so much longer in every step."""
    values = np.full((ranks, steps), usual)
    values[rank] += ms
    return values


def in_turn(ranks: int, steps: int, ms: float, usual: float) -> NDArray[np.float64]:
    """Another rank takes so much longer in each step."""
    values = np.full((ranks, steps), usual)
    values[np.arange(steps) % ranks, np.arange(steps)] += ms
    return values


def now_and_then(
    ranks: int, steps: int, rank: int, period: int, ms: float, usual: float
) -> NDArray[np.float64]:
    """One rank takes so much longer in every so many steps."""
    values = np.full((ranks, steps), usual)
    values[rank, period - 1 :: period] += ms
    return values
