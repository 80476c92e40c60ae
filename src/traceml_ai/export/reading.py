"""A run's figures at one moment, as metrics: one table for OpenTelemetry and Prometheus alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from traceml_ai.analyze.aggregate import RankAggregate
from traceml_ai.analyze.columns import EXT, OBSERVED_BY
from traceml_ai.export.steps import RankSteps
from traceml_ai.schema.samples import HostSample
from traceml_ai.schema.step import BETWEEN_CAUSES, WINDOW_PHASES, Observed
from traceml_ai.schema.summary import Finding
from traceml_ai.stats import loghist

BOUNDS_S = tuple(scale * 10.0**power for power in range(-3, 3) for scale in (1, 2, 5))
"""Upper bounds of the step-time histogram, 1 ms to 500 s in three a decade."""

Attributes = dict[str, str]
Kind = Literal["counter", "gauge", "histogram"]


class Distribution(NamedTuple):
    """How many steps took how long: counts up to each of `BOUNDS_S` and beyond, not cumulated."""

    counts: list[int]
    total_s: float


class Point(NamedTuple):
    """One figure and what it belongs to."""

    attributes: Attributes
    value: float | Distribution


class Metric(NamedTuple):
    """One metric, named and measured as OpenTelemetry's conventions have it."""

    name: str
    unit: str
    kind: Kind
    help: str
    points: list[Point]


class Reading(NamedTuple):
    """What is known of a run now."""

    run: str
    started_ns: int  # since the epoch
    taken_ns: int
    ranks: Sequence[RankSteps]  # one process a rank
    samples: Sequence[HostSample]  # the newest of each training process
    diagnosis: Finding | None


def metrics_of(reading: Reading) -> list[Metric]:
    """Return every metric that has a figure; what was not measured is absent, not zero."""
    found = [*_counts(reading), *_times(reading), *_memory(reading), *_host(reading), _diagnosis(reading)]
    return [metric for metric in found if metric.points]


def _per_rank(reading: Reading) -> Iterator[tuple[Attributes, RankAggregate]]:
    for each in reading.ranks:
        yield {"rank": str(each.rank)}, each.aggregate


def _seen(aggregate: RankAggregate, column: str) -> bool:
    bits = OBSERVED_BY.get(column, Observed(0))
    return aggregate.count > 0 and all(aggregate.observed[bit] for bit in Observed if bit in bits)


def _sum(aggregate: RankAggregate, column: str) -> int:
    return int(aggregate.sums[EXT[column]])


def _counts(reading: Reading) -> Iterator[Metric]:
    steps = [Point(rank, float(aggregate.count)) for rank, aggregate in _per_rank(reading)]
    yield Metric("traceml.steps", "{step}", "counter", "Closed training steps", steps)
    for name, what in (
        ("updates", "Optimizer steps that took effect"),
        ("microbatches", "Batches that went through a backward"),
        ("samples", "Samples trained on"),
        ("tokens", "Tokens trained on"),
    ):
        points = [
            Point(rank, float(_sum(aggregate, name)))
            for rank, aggregate in _per_rank(reading)
            if _seen(aggregate, name)
        ]
        yield Metric(f"traceml.{name}", f"{{{name[:-1]}}}", "counter", what, points)


def _times(reading: Reading) -> Iterator[Metric]:
    host = ("input_wait", *WINDOW_PHASES, "residual")
    yield _time("traceml.phase.time", "Time in each phase of the steps", reading, "phase", host, "{}_ns")
    device = (*WINDOW_PHASES, "residual")
    yield _time(
        "traceml.device.phase.time", "The same on the device's clock", reading, "phase", device, "dev_{}_ns"
    )
    causes = BETWEEN_CAUSES
    yield _time("traceml.between_steps.time", "Time between steps", reading, "cause", causes, "between_{}_ns")
    own = [Point(rank, _sum(agg, "own_ns") / 1e9) for rank, agg in _per_rank(reading)]
    yield Metric("traceml.own.time", "s", "counter", "What measuring cost the training thread", own)
    duration = [Point(rank, _distribution(agg)) for rank, agg in _per_rank(reading) if agg.count]
    yield Metric("traceml.step.duration", "s", "histogram", "How long steps took", duration)


def _time(name: str, what: str, reading: Reading, label: str, parts: Sequence[str], column: str) -> Metric:
    points = [
        Point({**rank, label: part}, _sum(aggregate, column.format(part)) / 1e9)
        for rank, aggregate in _per_rank(reading)
        for part in parts
        if _seen(aggregate, column.format(part))
    ]
    return Metric(name, "s", "counter", what, points)


def _distribution(aggregate: RankAggregate) -> Distribution:
    counted = aggregate.histograms["step_ns"]
    edges = loghist.bins_of(np.array([bound * 1e9 for bound in BOUNDS_S], dtype=np.int64))
    up_to = [int(counted[:edge].sum()) for edge in edges]
    counts = np.diff([0, *up_to, int(counted.sum())]).tolist()
    return Distribution(counts, _sum(aggregate, "step_ns") / 1e9)


def _memory(reading: Reading) -> Iterator[Metric]:
    device = [
        Point({**rank, "state": state}, float(agg.last_bucket_peak(EXT[f"peak_{state}_bytes"])))
        for rank, agg in _per_rank(reading)
        for state in ("allocated", "reserved")
        if _seen(agg, f"peak_{state}_bytes")
    ]
    yield Metric("traceml.device.memory.peak", "By", "gauge", "Peak device memory of the last steps", device)
    process = [
        Point({"pid": str(sample.pid), "process": name}, float(size))
        for sample in reading.samples
        for name, size in (("main", sample.main_rss_bytes), ("workers", sample.workers_pss_bytes))
        if size
    ]
    yield Metric("traceml.process.memory", "By", "gauge", "Memory of the training process", process)
    cpu = [Point({"pid": str(s.pid)}, s.main_cpu_s) for s in reading.samples if s.main_cpu_s is not None]
    yield Metric("traceml.process.cpu.time", "s", "counter", "Processor time of the training process", cpu)
    workers = [Point({"pid": str(sample.pid)}, float(sample.workers)) for sample in reading.samples]
    yield Metric("traceml.loader.workers", "{process}", "gauge", "Processes it has started", workers)


def _host(reading: Reading) -> Iterator[Metric]:
    newest = reading.samples[-1] if reading.samples else None
    pct = newest.host_cpu_pct if newest else None
    used = newest.host_used_bytes if newest else None
    busy = [] if pct is None else [Point({}, pct / 100)]
    memory = [] if used is None else [Point({}, float(used))]
    yield Metric(
        "traceml.host.cpu.utilization", "1", "gauge", "The host's processors, whoever used them", busy
    )
    yield Metric("traceml.host.memory.used", "By", "gauge", "The host's memory, whoever used it", memory)


def _diagnosis(reading: Reading) -> Metric:
    found = reading.diagnosis
    points = [] if found is None else [Point({"kind": found.kind, "severity": found.severity}, 1.0)]
    return Metric("traceml.diagnosis", "", "gauge", "1 for the primary finding so far", points)
