"""Turns a run's records, facts and samples into the signals that rules see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from traceml_ai.analyze import hosts
from traceml_ai.analyze.aggregate import RankAggregate
from traceml_ai.analyze.breakdown import (
    Breakdown,
    Clock,
    break_down,
    clock_of,
    user_phase_names,
    waited_ns,
)
from traceml_ai.analyze.columns import EXT, column, observed_mask
from traceml_ai.analyze.drift import Drift, find_drift
from traceml_ai.analyze.ranks import RankPart
from traceml_ai.analyze.stalls import Stalls, find_stalls
from traceml_ai.analyze.steady import Steady, pooled, steady_part
from traceml_ai.analyze.timeline import timeline
from traceml_ai.diagnose import named
from traceml_ai.diagnose.across import Across, Compared, RankLike, compare_ranks
from traceml_ai.diagnose.attempts import split_attempts
from traceml_ai.diagnose.signals import Collections, EpochStarts, RankInput, Signals, StepMemory
from traceml_ai.schema.run import RunInfo
from traceml_ai.schema.samples import HostSample
from traceml_ai.schema.step import BETWEEN_CAUSES, WINDOW_PHASES, Flags, Observed
from traceml_ai.stats.growth import late_growth

MANY_RANKS = 64
"""Up to here every rank is described in full."""

_RESIDUAL_CAUSES = ("validation", "checkpoint", "other")


class RankView(NamedTuple):
    """One rank, its steady part and its breakdown."""

    given: RankInput
    steady: Steady
    breakdown: Breakdown | None

    @property
    def rank(self) -> int | None:
        """The rank, where it is known."""
        rank = self.given.facts.get("rank")
        if rank is None and self.given.header is not None and self.given.header.rank >= 0:
            return self.given.header.rank
        return rank

    @property
    def pid(self) -> int | None:
        """The training process."""
        return self.given.header.pid if self.given.header else self.given.facts.get("pid")


class RunView(NamedTuple):
    """All ranks of a run: the whole, and the one that stands for it where one must."""

    ranks: list[RankView]  # those with steps first, by rank
    whole: Steady
    breakdown: Breakdown | None
    samples: list[HostSample]  # of the first rank's process
    across: Across | None = None  # where several ranks train together
    attempts: int = 1
    earlier_steps: int = 0  # of the attempts before, the most of any process

    @property
    def first(self) -> RankView:
        """The lowest rank that trained."""
        return self.ranks[0]

    @property
    def aggregate(self) -> RankAggregate:
        """The first rank's records."""
        return self.first.given.aggregate


def view_run(ranks: Sequence[RankInput], samples: Sequence[HostSample]) -> RunView:
    """Order the ranks and compute what every later part needs; no rank is one rank without steps."""
    given, earlier, attempts = split_attempts(list(ranks) or [RankInput(RankAggregate(), {})])
    parts = [steady_part(each.aggregate) for each in given]
    clock = _common_clock(given, parts)
    views = sorted(
        (
            RankView(each, part, _rank_breakdown(each, part, clock, means_only=len(given) > MANY_RANKS))
            for each, part in zip(given, parts, strict=True)
        ),
        key=_order,
    )
    trained = [view for view in views if view.steady.steps > 0] or views[:1]
    whole = pooled([view.steady for view in trained])
    totals = np.sum([view.given.aggregate.sums for view in trained], axis=0)
    names = views[0].given.facts.get("user_phases", [])
    breakdown = break_down(whole, totals, clock, names)
    return RunView(
        views,
        whole,
        breakdown,
        _samples_of(views[0].pid, samples),
        _across(views, clock),
        attempts=attempts,
        earlier_steps=max((each.aggregate.count for each in earlier), default=0),
    )


def _across(views: list[RankView], clock: Clock) -> Across | None:
    """Compare the ranks of a process group: other processes beside them need not go in step with it."""
    members: dict[int, int] = {}
    for i, view in enumerate(views):
        if view.rank is None or (view.given.facts.get("world_size") or 1) < 2:  # noqa: PLR2004
            continue
        # A command may run one job after another: the ranks of the last one.
        known = members.get(view.rank)
        if known is None or _began(view) > _began(views[known]):
            members[view.rank] = i
    chosen = sorted(members.values())
    ranks = [
        RankLike(RankPart(view.given.aggregate, view.steady), view.rank or 0, view.given.facts.get("node"))
        for view in (views[i] for i in chosen)
    ]
    across = compare_ranks(ranks, clock)
    if across is None:
        return None
    rows = [Compared()] * len(views)
    for i, row in zip(chosen, across.rows, strict=True):
        rows[i] = row
    return across._replace(rows=rows, members=frozenset(chosen))


def _began(view: RankView) -> int:
    return view.given.aggregate.first_begin_ns or 0


def _rank_breakdown(given: RankInput, part: Steady, clock: Clock, *, means_only: bool) -> Breakdown | None:
    names = given.facts.get("user_phases", [])
    return break_down(part, given.aggregate.sums, clock, names, means_only=means_only)


def _order(view: RankView) -> tuple[bool, int, int]:
    count = view.given.aggregate.count
    return (count == 0, view.rank if view.rank is not None else 1 << 30, -count)


def _common_clock(given: Sequence[RankInput], parts: Sequence[Steady]) -> Clock:
    """Return one clock for the whole window: the device's only when every rank has it throughout."""
    clocks = {
        clock_of(each.aggregate.observed, part.steps, _warm_device_steps(each.aggregate, part))
        for each, part in zip(given, parts, strict=True)
        if part.steps
    }
    return "device" if clocks == {"device"} else "host"


def _warm_device_steps(aggregate: RankAggregate, part: Steady) -> int:
    return int(observed_mask(aggregate.head()[: part.warmup], "dev_total_ns").sum())


def _samples_of(pid: int | None, samples: Sequence[HostSample]) -> list[HostSample]:
    own = [sample for sample in samples if sample.pid == pid]
    return hosts.thinned(own or samples)


def signals_of(run: RunInfo, view: RunView) -> Signals:
    """Name every signal of a run."""
    first, steady, aggregate = view.first, view.first.steady, view.aggregate
    facts = first.given.facts
    loaders = facts.get("loaders", [])
    machine = run.machine
    return Signals(
        steps=aggregate.count,
        steady_steps=steady.steps,
        aborted_steps=_counter(first, "aborted"),
        exception=facts.get("exception") or run.exception,
        running=run.status == "running",
        hand_written_updates=_mostly(aggregate, Flags.NO_OPTIMIZER),
        breakdown=view.breakdown,
        residual_causes_ns=named.with_parts(
            _per_step(view.whole, {c: f"residual_{c}_ns" for c in _RESIDUAL_CAUSES}), facts
        ),
        between_causes_ns=_between_causes(view.whole, view.breakdown),
        handlers_ns=named.handlers(facts, aggregate.count),
        host_phases_ns=_per_step(view.whole, {phase: f"{phase}_ns" for phase in WINDOW_PHASES}),
        stalls=_named_stalls(find_stalls(steady.rows), facts.get("user_phases", [])),
        drift=_named_drift(find_drift(aggregate, steady), facts.get("user_phases", [])),
        epoch_starts=_epoch_starts(steady),
        collections=_collections(steady),
        timeline=timeline(aggregate, run.start_ns, run.end_ns),
        loader=loaders[0] if loaders else None,
        torch_threads=facts.get("torch_threads"),
        usable_cpus=machine.usable_cpus if machine else None,
        memory_limit_bytes=(machine.memory_limit_bytes or machine.memory_total_bytes) if machine else None,
        main_memory=hosts.memory(aggregate, view.samples, steady.warmup, of_workers=False),
        workers_memory=hosts.memory(aggregate, view.samples, steady.warmup, of_workers=True),
        cpu=hosts.cpu(view.samples, _steady_from_ns(steady)),
        host=hosts.host(view.samples),
        step_memory=_step_memory(aggregate, steady),
        ranks=view.across.facts if view.across else None,
    )


def _counter(view: RankView, name: str) -> int:
    header = view.given.header
    if header is None:
        return view.given.facts.get("aborted_steps", 0) if name == "aborted" else 0
    return header.aborted if name == "aborted" else header.dropped


def _mostly(aggregate: RankAggregate, flag: Flags) -> bool:
    return aggregate.count > 0 and 2 * aggregate.flags[flag] > aggregate.count


def _steady_from_ns(steady: Steady) -> int | None:
    return int(steady.rows[0, EXT["begin_ns"]]) if len(steady.rows) else None


def _per_step(steady: Steady, columns: dict[str, str]) -> dict[str, float]:
    if steady.steps == 0:
        return {}
    return {name: steady.total_ns(col) / steady.steps for name, col in columns.items()}


def _between_causes(steady: Steady, breakdown: Breakdown | None) -> dict[str, float]:
    causes = _per_step(steady, {cause: f"between_{cause}_ns" for cause in BETWEEN_CAUSES})
    if causes:
        causes["other"] += steady.total_ns("gap_ns") / steady.steps
    if breakdown is not None and breakdown.clock == "device":
        causes["other"] = max(0.0, causes["other"] - waited_ns(steady) / steady.steps)
    return causes


def _named_stalls(stalls: Stalls | None, user_phases: Sequence[str]) -> Stalls | None:
    return stalls._replace(place=_named(stalls.place, user_phases)) if stalls else None


def _named_drift(drift: Drift | None, user_phases: Sequence[str]) -> Drift | None:
    return drift._replace(phase=_named(drift.phase, user_phases)) if drift else None


def _named(place: str, user_phases: Sequence[str]) -> str:
    names = {col: name for name, col in user_phase_names(user_phases).items()}
    return names.get(place, place)


def _epoch_starts(steady: Steady) -> EpochStarts | None:
    epochs = steady.epoch_starts
    others = steady.steps - epochs
    if epochs == 0 or others <= 0:
        return None
    first_wait = int(steady.epoch_start_sums[EXT["input_wait_ns"]])
    return EpochStarts(
        epochs,
        first_wait / epochs,
        (steady.total_ns("input_wait_ns") - first_wait) / others,
        steady.total_ns("between_loader_ns") / epochs,
    )


def _collections(steady: Steady) -> Collections | None:
    if steady.steps == 0:
        return None
    pauses = column(steady.rows, "gc_ns") + column(steady.rows, "between_gc_ns")
    return Collections(
        steady.total_ns("gc_collections"),
        steady.total_ns("gc_ns") + steady.total_ns("between_gc_ns"),
        steady.total_ns("between_gc_ns"),
        int(pauses.max(initial=0)),
    )


def _step_memory(aggregate: RankAggregate, steady: Steady) -> StepMemory | None:
    if aggregate.observed[Observed.MEMORY] == 0:
        return None
    buckets = aggregate.buckets()
    first = np.arange(len(buckets.counts)) * buckets.width
    kept = first >= steady.warmup
    peaks = buckets.maxima[:, EXT["peak_allocated_bytes"]]
    return StepMemory(
        int(peaks.max()),
        int(buckets.maxima[:, EXT["peak_reserved_bytes"]].max()),
        late_growth(first[kept], peaks[kept]),
    )
