"""Which ranks the others wait for, in which phase, how regularly, and what it costs.

The what-if follows the study of stragglers in large training jobs by Lin and others ("Understanding
Stragglers in Large Model Training Using What-if Analysis", OSDI 2025): ``S = T / T_ideal``, where T is
a step as long as its slowest rank and T_ideal one in which every rank takes the typical time in every
phase; and the share of the slowdown that goes away when only the slowest ranks are made ideal. The
score per rank is that of NVIDIA's Resiliency Extension: the fastest rank's median over a rank's own.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from traceml_ai.analyze.ranks import PHASES, Floats, Lockstep

Persistence = Literal["steady", "rotating", "one-off"]
Mask = NDArray[np.bool_]

# A steady straggler is slower than the others by a tenth of the step, and by a millisecond: ranks of a
# balanced job differ by half of one (2.9 and 3.4 ms on an idle machine) ...
_STEADY_PART, _STEADY_NS = 0.10, 1e6
# ... and it is last in three steps of four.
_STEADY_LAST = 0.75
# Ranks that are at least half as late as the worst are slow together (a pipeline stage, a node).
_TOGETHER = 0.5
# Single steps stand out when the others wait longer than half a step beyond what is usual.
_ODD_PART, _ODD_NS = 0.5, 2e6
_ODD_AT_MOST = 0.2  # of the steps; beyond, it is no exception
_ODD_SHARE = 0.05  # of the run's time that they must cost
# Of these the long ones are looked at, without the noise just above the limit: at least half as long as the
# one at which half of the cost is reached.
_ODD_ALIKE = 0.5
_ODD_BLAME = 0.8  # of their cost that must be one rank's
# By luck alone one rank would be behind so many of them with less than this probability.
_LUCK = 0.05
# Rotating: in the usual step somebody is late by a quarter of the step. Below, it is what the noise of a
# busy machine makes of the slowest of several ranks (two balanced ranks on two shared processors: up to
# a fifth).
_ROTATING_PART, _ROTATING_NS = 0.25, 3e6
# Nobody waits for a rank in a job whose ranks have nothing to do with one another: what the others stand at
# collectives must be a good part of the delay.
_WAITED = 0.5
# A phase is named when it holds most of the delay.
_NAMED = 0.5
# The study's "slowest workers": three in a hundred.
_SLOWEST = 0.03
# Below one percent there is no slowdown whose ranks could be named.
_NO_SLOWDOWN = 1.01
# Who waits at least half as long as the one who waits longest is a victim.
_VICTIM = 0.5


class WhatIf(NamedTuple):
    """Mean step times, measured and imagined."""

    step_ns: float  # every step as long as its slowest rank
    ideal_ns: float  # every rank takes the typical time in every phase
    slowest: list[int]  # three in a hundred, at least one
    without_slowest_ns: float  # these made ideal

    @property
    def slowdown(self) -> float:
        """``S = T / T_ideal``; 1.0 is a job without stragglers."""
        return self.step_ns / self.ideal_ns

    @property
    def from_slowest(self) -> float | None:
        """Share of the slowdown that goes away with the slowest ranks; ``None``: there is hardly any."""
        if self.slowdown < _NO_SLOWDOWN:
            return None
        gone = (self.step_ns - self.without_slowest_ns) / (self.step_ns - self.ideal_ns)
        return min(1.0, max(0.0, gone))


class Straggling(NamedTuple):
    """What the others wait for. Ranks are positions in the lockstep."""

    persistence: Persistence
    culprits: list[int]  # empty: no rank more than another
    victims: list[int]  # who waits most, longest first
    phase: str | None  # None: the delay is spread over several
    excess_ns: float  # the culprits' delay in the steps in which they are late
    by_phase_ns: dict[str, float]  # where that delay lies
    step_ns: float  # mean step, as long as its slowest rank
    without_ns: float  # the same if the culprits ran like the others
    late_share: float  # of the steps in which they are late (rotating: in which somebody is)


def typical(values: Floats, axis: int = 0) -> Floats:
    """Return the lower median over ranks: of two ranks the faster, so a slow half is never the norm."""
    middle = (values.shape[axis] - 1) // 2
    return np.asarray(np.take(np.partition(values, middle, axis=axis), middle, axis=axis), dtype=np.float64)


def scores(lockstep: Lockstep) -> list[float]:
    """Return each rank's score: the fastest rank's median step over its own, 1.0 is the fastest."""
    medians = np.median(lockstep.work_ns, axis=1)
    return [float(score) for score in medians.min() / medians]


def what_if(lockstep: Lockstep) -> WhatIf:
    """Return the step as it is, and as it would be without any straggler."""
    work = lockstep.work_ns
    phases = lockstep.mean(np.moveaxis(lockstep.own_ns, 1, 2))  # (ranks, phases)
    ideal = float(typical(phases).sum() + lockstep.mean(lockstep.transfer_ns))
    means = lockstep.mean(work)
    many = max(1, math.ceil(_SLOWEST * len(means)))
    slowest = [int(rank) for rank in np.argsort(-means, kind="stable")[:many]]
    others = np.delete(work, slowest, axis=0)
    without = float(lockstep.mean(np.maximum(others.max(axis=0), ideal)))
    return WhatIf(float(lockstep.mean(work.max(axis=0))), ideal, slowest, without)


def find_straggling(lockstep: Lockstep) -> Straggling | None:
    """Return what the ranks wait for; ``None`` for a balanced job."""
    return _steady(lockstep) or _one_off(lockstep) or _rotating(lockstep)


def _steady(lockstep: Lockstep) -> Straggling | None:
    work = lockstep.work_ns
    usual = np.median(work, axis=1)
    excess = usual - typical(usual)
    worst = float(excess.max())
    late = excess >= _TOGETHER * worst
    if worst < max(_STEADY_NS, _STEADY_PART * float(typical(usual))) or 2 * late.sum() > len(late):
        return None
    last = late[work.argmax(axis=0)]
    if float(lockstep.mean(last.astype(np.float64))) < _STEADY_LAST:
        return None
    return _named("steady", lockstep, late, last)


def _one_off(lockstep: Lockstep) -> Straggling | None:
    work = lockstep.work_ns
    late_by = work.max(axis=0) - typical(work)
    limit = float(np.median(late_by)) + max(_ODD_NS, _ODD_PART * float(np.median(typical(work))))
    odd = _long_ones(late_by, np.where(late_by > limit, late_by * lockstep.steps, 0.0))
    if not 0 < odd.sum() <= _ODD_AT_MOST * len(odd):
        return None
    cost = float(late_by[odd] @ lockstep.steps[odd])
    if cost < _ODD_SHARE * float(work.max(axis=0) @ lockstep.steps):
        return None
    last = work.argmax(axis=0)
    blame = np.bincount(last[odd], weights=late_by[odd], minlength=len(work))
    culprit = int(blame.argmax())
    if blame[culprit] < _ODD_BLAME * blame.sum():
        return None
    hits = int((last[odd] == culprit).sum())
    if _luck(int(odd.sum()), hits, len(work)) > _LUCK:
        return None
    return _named("one-off", lockstep, np.arange(len(work)) == culprit, odd & (last == culprit))


def _long_ones(late_by: Floats, costs: Floats) -> Mask:
    """Return which units are late by much, as delays go that cost anything."""
    order = np.argsort(-late_by, kind="stable")
    half = min(len(order) - 1, int(np.searchsorted(np.cumsum(costs[order]), 0.5 * costs.sum())))
    return np.asarray((costs > 0) & (late_by >= _ODD_ALIKE * late_by[order[half]]), dtype=np.bool_)


def _rotating(lockstep: Lockstep) -> Straggling | None:
    work = lockstep.work_ns
    late_by = work.max(axis=0) - typical(work)
    step = float(lockstep.mean(work.max(axis=0)))
    if float(np.median(late_by)) < max(_ROTATING_NS, _ROTATING_PART * step):
        return None
    others = 1 - 1 / len(work)
    if float(lockstep.mean(lockstep.wait_ns).mean()) < _WAITED * others * float(lockstep.mean(late_by)):
        return None
    last = work.argmax(axis=0)
    own = np.take_along_axis(lockstep.own_ns, last[None, :, None], axis=0)[0]  # (units, phases)
    by_phase = _by_phase(lockstep.mean((own - typical(lockstep.own_ns)).T))
    return Straggling(
        persistence="rotating",
        culprits=[],
        victims=[],
        phase=_largest(by_phase),
        excess_ns=float(lockstep.mean(late_by)),
        by_phase_ns=by_phase,
        step_ns=step,
        without_ns=float(lockstep.mean(typical(work))),
        late_share=1.0,
    )


def _luck(odd: int, hits: int, ranks: int) -> float:
    """The probability that some rank is behind so many of the odd steps by chance."""
    each = 1 / ranks
    tail = sum(math.comb(odd, k) * each**k * (1 - each) ** (odd - k) for k in range(hits, odd + 1))
    return min(1.0, ranks * tail)


def _named(persistence: Persistence, lockstep: Lockstep, late: Mask, when: Mask) -> Straggling | None:
    """Describe the delay of the ranks that are ``late`` in the units ``when``; the others must wait."""
    work, weights = lockstep.work_ns, lockstep.steps[when]
    norm = typical(work)
    others = np.where(late[:, None], np.minimum(work, norm), work)
    own = np.average(lockstep.own_ns[late][:, when].mean(axis=0), axis=0, weights=weights)
    usual = typical(np.average(lockstep.own_ns[:, when], axis=1, weights=weights))
    by_phase = _by_phase(own - usual)
    delay = float(np.average((work[late].mean(axis=0) - norm)[when], weights=weights))
    if float(np.average(lockstep.wait_ns[~late][:, when].mean(axis=0), weights=weights)) < _WAITED * delay:
        return None
    return Straggling(
        persistence=persistence,
        culprits=[int(rank) for rank in np.flatnonzero(late)],
        victims=_victims(lockstep, late, when),
        phase=_largest(by_phase),
        excess_ns=delay,
        by_phase_ns=by_phase,
        step_ns=float(lockstep.mean(work.max(axis=0))),
        without_ns=float(lockstep.mean(others.max(axis=0))),
        late_share=float(weights.sum() / lockstep.steps.sum()),
    )


def _victims(lockstep: Lockstep, late: Mask, when: Mask) -> list[int]:
    waits = np.where(late, 0.0, lockstep.wait_ns[:, when].mean(axis=1))
    order = np.argsort(-waits, kind="stable")
    return [int(rank) for rank in order if waits[rank] > 0 and waits[rank] >= _VICTIM * waits.max()]


def _by_phase(excess: Floats) -> dict[str, float]:
    return {phase: float(value) for phase, value in zip(PHASES, excess, strict=True)}


def _largest(by_phase: dict[str, float]) -> str | None:
    largest = max(by_phase, key=lambda phase: by_phase[phase])
    late = sum(value for value in by_phase.values() if value > 0)
    return largest if by_phase[largest] >= _NAMED * late > 0 else None
