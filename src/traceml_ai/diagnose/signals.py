"""The named signals that rules see; any of them may be missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from traceml_ai.analyze.aggregate import RankAggregate
from traceml_ai.analyze.breakdown import Breakdown
from traceml_ai.analyze.drift import Drift
from traceml_ai.analyze.hosts import CpuFacts, HostFacts, MemoryFacts
from traceml_ai.analyze.stalls import Stalls
from traceml_ai.analyze.stragglers import Straggling, WhatIf
from traceml_ai.analyze.timeline import Timeline
from traceml_ai.schema.facts import LoaderFacts, ProcessFacts
from traceml_ai.stats.growth import Growth

# Twenty steps: the least from which a median and a spread say anything.
MIN_STEPS = 20
# Around a millisecond a step is mostly the interpreter calling into torch, whatever the script does:
# its shares say little, and advice about them would be about Python.
TOO_SHORT_NS = 1e6
# Up to here shares are shown and named, but nobody is alarmed.
SHORT_NS = 2e6
# Two fifths of a step for transfer, besides what overlaps with computing: then computing is no longer
# most of it. On processors alone gloo's own adding up shows as transfer too, a quarter to a third.
COMM_BOUND_SHARE = 0.40


class HeaderCounters(Protocol):
    """What of a step log's header is needed here."""

    @property
    def pid(self) -> int:
        """The training process."""

    @property
    def rank(self) -> int:
        """Its rank, -1 when not known."""

    @property
    def aborted(self) -> int:
        """Steps that did not end."""

    @property
    def dropped(self) -> int:
        """Closed steps that could not be kept."""


class RankInput(NamedTuple):
    """One training process: its records, what it says about itself, its log's counters."""

    aggregate: RankAggregate
    facts: ProcessFacts
    header: HeaderCounters | None = None


class EpochStarts(NamedTuple):
    """What beginning an epoch costs, per epoch and over an ordinary step."""

    epochs: int
    first_wait_ns: float
    ordinary_wait_ns: float
    loader_ns: float  # creating and ending the loader's iterator

    @property
    def excess_ns(self) -> float:
        """Time per epoch that an endless epoch would not cost."""
        return max(0.0, self.first_wait_ns - self.ordinary_wait_ns) + self.loader_ns


class Collections(NamedTuple):
    """Garbage collection in the steady steps."""

    collections: int  # inside steps; those between them are not counted
    total_ns: int  # inside steps and between them
    between_ns: int
    longest_ns: int  # longest sum in one of the recent steps


class StepMemory(NamedTuple):
    """Peak device memory per step."""

    peak_allocated_bytes: int
    peak_reserved_bytes: int
    growth: Growth | None  # bytes against steps


class RankFacts(NamedTuple):
    """Several ranks beside one another; positions in `straggling` and `what_if` index `ranks`."""

    ranks: list[int]
    nodes: list[str | None]
    first_step: int
    last_step: int
    measured: bool  # waiting for other ranks was measured
    straggling: Straggling | None
    what_if: WhatIf
    transfer_ns: float | None  # at collectives however early a rank comes, per step; needs `measured`
    stood_ns: float | None  # at collectives altogether, per step, mean over ranks; needs `measured`
    step_ns: float  # mean over ranks, time between steps included
    stood_by_phase_ns: dict[str, float]  # `stood_ns` by phase; empty without `measured`

    @property
    def sources(self) -> list[int]:
        """Positions of ranks that fetch for the others, which wait for the batches in their own input."""
        straggling, stood = self.straggling, self.stood_by_phase_ns.get("input_wait", 0.0)
        if straggling is None or straggling.phase != "input_wait" or 2 * stood < (self.stood_ns or 0.0):
            return []
        return straggling.culprits if stood else []

    @property
    def is_comm_bound(self) -> bool:
        """Whether transferring takes so much of the step that computing is no longer most of it."""
        return (self.transfer_ns or 0.0) >= COMM_BOUND_SHARE * self.step_ns

    def name(self, position: int) -> str:
        """Return what a rank is called: ``rank r3``, with its node where there are several."""
        node = self.nodes[position]
        several = len(set(self.nodes)) > 1
        return f"rank r{self.ranks[position]}" + (f" on {node}" if several and node else "")


@dataclass(frozen=True, kw_only=True)
class Signals:
    """One run as rules see it: durations in nanoseconds, shares 0..1, ``None`` for not known."""

    steps: int = 0  # closed steps, warm-up included
    steady_steps: int = 0
    aborted_steps: int = 0
    exception: str | None = None
    running: bool = False  # this is a look at a run that goes on
    hand_written_updates: bool = False
    breakdown: Breakdown | None = None
    residual_causes_ns: dict[str, float] = field(default_factory=dict)  # per steady step
    between_causes_ns: dict[str, float] = field(default_factory=dict)  # per steady step
    handlers_ns: dict[str, float] = field(default_factory=dict)  # a framework's, per step, costliest first
    host_phases_ns: dict[str, float] = field(default_factory=dict)  # per steady step, host clock
    stalls: Stalls | None = None
    drift: Drift | None = None
    epoch_starts: EpochStarts | None = None
    collections: Collections | None = None
    timeline: Timeline | None = None
    loader: LoaderFacts | None = None
    torch_threads: int | None = None
    usable_cpus: float | None = None
    memory_limit_bytes: int | None = None  # the limit, or all of the host's memory without one
    main_memory: MemoryFacts | None = None
    workers_memory: MemoryFacts | None = None
    cpu: CpuFacts | None = None
    host: HostFacts | None = None
    step_memory: StepMemory | None = None
    ranks: RankFacts | None = None

    @property
    def enough_steps(self) -> bool:
        """Whether there are steps enough to judge anything about them."""
        return self.steps >= MIN_STEPS and self.breakdown is not None

    @property
    def judgeable(self) -> Breakdown | None:
        """The breakdown, if its shares may be judged: enough steps, and long enough ones."""
        if not self.enough_steps or self.breakdown is None:
            return None
        return None if self.breakdown.step_ns < TOO_SHORT_NS else self.breakdown

    @property
    def loop_ns(self) -> float | None:
        """Mean time of one turn of the loop, without our own work."""
        return self.breakdown.loop_ns if self.breakdown else None

    @property
    def stood_share(self) -> float:
        """Share of step time at collectives, where that is what the step is about."""
        ranks = self.ranks
        if ranks is None or not (ranks.is_comm_bound or (ranks.straggling and ranks.straggling.culprits)):
            return 0.0
        return (ranks.stood_ns or 0.0) / ranks.step_ns

    @property
    def ranks_waited_in(self) -> list[str]:
        """Phases in which ranks stand at collectives; the backward where that was not measured."""
        stood = self.ranks.stood_by_phase_ns if self.ranks else {}
        return [phase for phase, ns in stood.items() if ns > 0] or ["backward"]

    @property
    def workers(self) -> int | None:
        """The training loader's ``num_workers``."""
        return self.loader.get("num_workers") if self.loader else None

    @property
    def steps_per_epoch(self) -> float | None:
        """Steps per epoch, once two epochs have begun."""
        starts = self.epoch_starts
        return self.steady_steps / starts.epochs if starts and starts.epochs > 1 else None

    def share(self, phase: str) -> float | None:
        """Return a phase's share of step time, if shares may be judged and it was observed."""
        breakdown = self.judgeable
        return breakdown.share(phase) if breakdown else None


MemoryScope = Literal["main process", "loader workers"]


def memory_series(signals: Signals) -> Sequence[tuple[MemoryScope, MemoryFacts]]:
    """Return the host-memory series that were sampled."""
    both: tuple[tuple[MemoryScope, MemoryFacts | None], ...] = (
        ("main process", signals.main_memory),
        ("loader workers", signals.workers_memory),
    )
    return [(scope, facts) for scope, facts in both if facts is not None]
