"""Every rule, and how their findings become one list, most costly first."""

from __future__ import annotations

from typing import Protocol

import msgspec

from traceml_ai.diagnose.cost import WARNING_SHARE, severity_of
from traceml_ai.diagnose.rules import (
    balanced,
    comm_bound,
    compute_bound,
    compute_straggler,
    device_memory_creep,
    device_memory_rising,
    epoch_start_stall,
    gc_pauses,
    h2d_bound,
    h2d_straggler,
    host_bound,
    host_memory_pressure,
    incomplete_data,
    input_bound,
    input_straggler,
    memory_creep,
    memory_rising,
    no_data,
    outside_heavy,
    periodic_stall,
    process_high_cpu,
    residual_heavy,
    slowdown,
    straggler,
    system_high_cpu,
    system_high_ram,
)
from traceml_ai.diagnose.signals import Signals
from traceml_ai.schema.summary import Finding


class Rule(Protocol):
    """What a rule's module has to offer."""

    KIND: str

    def meets_conditions(self, signals: Signals) -> bool:
        """Whether the rule has something to say."""

    def finding(self, signals: Signals) -> Finding:
        """What it has to say; only called when its conditions are met."""


# These say when, why or on which rank a phase takes long ...
SPECIFIC: tuple[Rule, ...] = (
    periodic_stall,
    slowdown,
    epoch_start_stall,
    gc_pauses,
    input_straggler,
    compute_straggler,
    h2d_straggler,
    straggler,
)
# ... these only that it does.
GENERAL: tuple[Rule, ...] = (input_bound, h2d_bound, residual_heavy, outside_heavy)
OTHER: tuple[Rule, ...] = (
    no_data,
    incomplete_data,
    host_bound,
    compute_bound,
    comm_bound,
    memory_creep,
    memory_rising,
    host_memory_pressure,
    process_high_cpu,
    device_memory_creep,
    device_memory_rising,
    system_high_ram,
    system_high_cpu,
)
# When nothing else is said about step time.
FALLBACK: Rule = balanced

_SEVERITIES = ("critical", "warning", "info")
_SECTIONS = ("step_time", "step_memory", "process", "system")


def diagnose(signals: Signals) -> list[Finding]:
    """Return every finding, the primary one first; never empty.

    The order is severity, then the time it would save: a finding without a price in time (a leak)
    stands behind those of its severity that have one.
    """
    specific = _without_echo(signals, _met(SPECIFIC, signals))
    general = [
        left for each in _met(GENERAL, signals) if (left := _unexplained(signals, each, specific)) is not None
    ]
    found = [*specific, *general, *_met(OTHER, signals)]
    if not any(each.section == "step_time" for each in found) and FALLBACK.meets_conditions(signals):
        found.append(FALLBACK.finding(signals))
    return sorted(found, key=_rank)


def _without_echo(signals: Signals, specific: list[Finding]) -> list[Finding]:
    """Leave out stalls of the first rank that are waiting for a rank that is named."""
    straggling = signals.ranks.straggling if signals.ranks else None
    if straggling is None or straggling.persistence != "one-off":
        return specific
    places = {straggling.phase, *signals.ranks_waited_in}
    return [each for each in specific if each.kind != periodic_stall.KIND or each.scope.phase not in places]


def _met(rules: tuple[Rule, ...], signals: Signals) -> list[Finding]:
    return [rule.finding(signals) for rule in rules if rule.meets_conditions(signals)]


def _rank(finding: Finding) -> tuple[int, float, int]:
    return (
        _SEVERITIES.index(finding.severity),
        -(finding.saved_s or 0.0),
        _SECTIONS.index(finding.section),
    )


def _unexplained(signals: Signals, general: Finding, specific: list[Finding]) -> Finding | None:
    """Take out of a general finding what a specific one already explains.

    A stall of 0.4 s every 25th step makes the residual heavy on average; saying both would count the
    same seconds twice and bury the useful answer. ``None``: too little is left to speak of.
    """
    explained = sum(_claim(each, general.scope.phase) for each in specific)
    explained += _at_collectives(signals, general.scope.phase)
    saved = general.saved_s or 0.0
    if explained <= 0 or not signals.loop_ns:
        return general
    left = saved - explained
    share = left / (signals.loop_ns * signals.steady_steps / 1e9)
    if share < WARNING_SHARE:
        return None
    return msgspec.structs.replace(
        general,
        severity=severity_of(share) if general.severity != "info" else "info",
        saved_s=left,
        cost_ms_per_step=1e3 * left / signals.steady_steps,
        evidence={**general.evidence, "explained_elsewhere_s": explained},
    )


def _at_collectives(signals: Signals, phase: str | None) -> float:
    """Return how many of a phase's seconds are standing at collectives: no work of that phase."""
    if signals.ranks is None or phase is None or (phase == "input_wait" and signals.ranks.sources):
        return 0.0
    return signals.ranks.stood_by_phase_ns.get(phase, 0.0) * signals.steady_steps / 1e9


# Findings whose seconds lie in several phases say in their evidence how many lie where.
_CLAIMS: dict[str, dict[str | None, str]] = {
    epoch_start_stall.KIND: {"input_wait": "input_wait_s", "between_steps": "loader_s"},
    gc_pauses.KIND: {"between_steps": "between_s"},
    # One rank's delay, as the mean over ranks has it.
    input_straggler.KIND: {"input_wait": "pooled_excess_s"},
    h2d_straggler.KIND: {"h2d": "pooled_excess_s"},
    compute_straggler.KIND: {},
    straggler.KIND: {"residual": "pooled_excess_s", "between_steps": "pooled_excess_s"},
}


def _claim(finding: Finding, phase: str | None) -> float:
    """Return how many of a phase's seconds a specific finding explains."""
    if finding.kind in _CLAIMS:
        key = _CLAIMS[finding.kind].get(phase)
        value = finding.evidence.get(key, 0.0) if key else 0.0
        return float(value) if isinstance(value, float) else 0.0
    return (finding.saved_s or 0.0) if finding.scope.phase == phase else 0.0
