"""What the straggler rules share: their conditions, their words, and what the delay costs."""

from __future__ import annotations

from collections.abc import Sequence

from traceml_ai.analyze.stragglers import Straggling
from traceml_ai.diagnose import words
from traceml_ai.diagnose.cost import Cost, Saving, cost_of, estimate, phase_severity
from traceml_ai.diagnose.neighbours import others_busy
from traceml_ai.diagnose.signals import RankFacts, Signals
from traceml_ai.schema.summary import Estimate, EvidenceValue, Finding, Scope

# Without the delay the job would be 1.05 times as fast; less is not worth looking for.
LEAST_SHARE = 0.05
# On a host whose processors are all busy ranks are late in turn whatever they do: only a delay of most of
# the step is then the job's own.
_BUSY_PCT, _ROTATING_BUSY = 90.0, 0.75
# Another program on a rank's processor takes half of it, and the rank up to twice as long.
_STEADY_BUSY = 1.0
# Longer lists of ranks are cut: the table has them all.
_LISTED = 16
_SHOWN = 4

_DOES = {
    "input_wait": "waits longer for its input than the others",
    "h2d": "copies to its device longer than the others",
    "forward": "takes longer in forward than the others",
    "backward": "takes longer in backward than the others",
    "optimizer": "takes longer in the optimizer than the others",
    "residual": "takes longer than the others inside the step, in no phase",
    "between_steps": "takes longer than the others between steps",
    None: "takes longer than the others, in several phases",
}


def found(signals: Signals, phases: Sequence[str | None]) -> bool:
    """Whether a straggler worth naming is late in one of these phases."""
    ranks = signals.ranks
    if ranks is None or ranks.straggling is None or signals.judgeable is None:
        return False
    straggling = ranks.straggling
    if ranks.sources:
        return False  # it is nobody's delay, but how this job gets its input
    if _is_noise(signals, straggling):
        return False
    named = straggling.phase if straggling.culprits else None
    return named in phases and _saved_ns(straggling) >= LEAST_SHARE * straggling.step_ns


def _is_noise(signals: Signals, straggling: Straggling) -> bool:
    if straggling.persistence == "one-off":
        return False
    if straggling.culprits:
        return others_busy(signals) and straggling.excess_ns < _STEADY_BUSY * straggling.without_ns
    busy = signals.host is not None and (signals.host.cpu_pct or 0.0) >= _BUSY_PCT
    return busy and straggling.excess_ns < _ROTATING_BUSY * straggling.step_ns


def describe(signals: Signals, kind: str, advice: str) -> Finding:
    """Say who is late, where, how regularly, and what it costs."""
    ranks = signals.ranks
    assert ranks is not None
    straggling = ranks.straggling
    assert straggling is not None
    saved = _saved_ns(straggling)
    cost = cost_of(signals, saved)
    return Finding(
        kind=kind,
        severity=phase_severity(signals, cost.share),
        section="step_time",
        scope=_scope(ranks, straggling),
        why=_why(ranks, straggling),
        next=advice.format(who=_who(ranks, straggling.culprits)),
        evidence=_evidence(signals, ranks, straggling),
        estimate=_estimate(signals, straggling, ranks, cost),
        confidence="high" if ranks.measured else "medium",
        cost_ms_per_step=saved / 1e6,
        saved_s=cost.saved_s,
    )


def _saved_ns(straggling: Straggling) -> float:
    return straggling.step_ns - straggling.without_ns


def _scope(ranks: RankFacts, straggling: Straggling) -> Scope:
    nodes = {ranks.nodes[i] for i in straggling.culprits}
    return Scope(
        ranks=[ranks.ranks[i] for i in straggling.culprits] or None,
        node=nodes.pop() if len(nodes) == 1 else None,
        phase=straggling.phase,
        first_step=ranks.first_step,
        last_step=ranks.last_step,
    )


def _who(ranks: RankFacts, positions: Sequence[int]) -> str:
    names = [ranks.name(i) for i in positions[:_SHOWN]]
    more = len(positions) - len(names)
    if more:
        return f"{', '.join(names)} and {more} more"
    return " and ".join(names)


def _why(ranks: RankFacts, straggling: Straggling) -> str:
    compared = words.plural(len(ranks.ranks), "rank")
    late = words.ms(straggling.excess_ns)
    if not straggling.culprits:
        where = f", mostly in {straggling.phase.replace('_', ' ')}" if straggling.phase else ""
        return (
            f"In every step one of {compared} is late, by {late} on average{where}, and each time another: "
            "no rank is to blame."
        )
    who = _who(ranks, straggling.culprits)
    does = _DOES[straggling.phase]
    if len(straggling.culprits) > 1:
        does = does.replace("waits", "wait").replace("takes", "take").replace("copies", "copy")
        does = does.replace(" its ", " their ")
    often = words.percent(straggling.late_share)
    who = who[0].upper() + who[1:]
    return f"{who} {does}: {late} in {often} of the steps, while {_others(ranks, straggling)}."


def _others(ranks: RankFacts, straggling: Straggling) -> str:
    many = len(ranks.ranks) - len(straggling.culprits)
    if many == 1:
        other = next(i for i in range(len(ranks.ranks)) if i not in straggling.culprits)
        return f"{ranks.name(other)} waits"
    return f"{many} others wait"


def _evidence(signals: Signals, ranks: RankFacts, straggling: Straggling) -> dict[str, EvidenceValue]:
    what_if = ranks.what_if
    culprits, victims = straggling.culprits, straggling.victims
    part = len(culprits) / len(ranks.ranks)
    pooled = straggling.excess_ns * straggling.late_share * part * signals.steady_steps / 1e9
    return {
        "persistence": straggling.persistence,
        "culprit_ranks": [ranks.ranks[i] for i in culprits[:_LISTED]],
        "culprits": len(culprits),
        "victim_ranks": [ranks.ranks[i] for i in victims[:_LISTED]],
        "phase": straggling.phase,
        "excess_ms": straggling.excess_ns / 1e6,
        "late_share_pct": 100 * straggling.late_share,
        **{f"{phase}_excess_ms": value / 1e6 for phase, value in straggling.by_phase_ns.items()},
        "step_ms": straggling.step_ns / 1e6,
        "step_ms_if_like_others": straggling.without_ns / 1e6,
        "slowdown_ratio": what_if.slowdown,
        "slowdown_from_slowest_pct": None if what_if.from_slowest is None else 100 * what_if.from_slowest,
        "ranks_compared": len(ranks.ranks),
        "waiting_measured": ranks.measured,
        "pooled_excess_s": pooled,
    }


def _estimate(signals: Signals, straggling: Straggling, ranks: RankFacts, cost: Cost) -> Estimate | None:
    if not straggling.culprits:
        return None  # balancing work that is late in turn: nobody can say by how much
    expected = cost.per_step_ns
    most = max(expected, straggling.step_ns - ranks.what_if.ideal_ns)
    basis = "each step as long as its slowest rank, with the late ones taking what the others take"
    return estimate(
        signals,
        Saving(expected, 0.8 * expected, most, basis, in_step=straggling.phase != "between_steps"),
    )
