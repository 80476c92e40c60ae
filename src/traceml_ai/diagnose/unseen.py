"""What was not seen and why, and which rules therefore had nothing to say."""

from __future__ import annotations

from traceml_ai.diagnose import words
from traceml_ai.diagnose.provider import RunView
from traceml_ai.diagnose.signals import Signals
from traceml_ai.schema.run import RunInfo
from traceml_ai.schema.step import Flags

# Phase -> the rules that abstain without it. H2D is only there with an accelerator: no warning.
_ABSTAIN = {
    "input_wait": "INPUT_BOUND",
    "forward": "COMPUTE_BOUND, RESIDUAL_HEAVY",
    "backward": "COMPUTE_BOUND, RESIDUAL_HEAVY",
    "optimizer": "",
}

_LISTED = 8  # ranks that are named one by one


def warnings_of(run: RunInfo, view: RunView, signals: Signals) -> list[str]:
    """Return one sentence for everything that was not seen."""
    facts = view.first.given.facts
    told = [f"{each['probe']}: {each['message']}" for each in facts.get("warnings", [])]
    return list(
        dict.fromkeys(
            [*run.warnings, *told, *_steps(view, signals), *_phases(signals), *_ranks(view), *_samples(view)]
        )
    )


def _steps(view: RunView, signals: Signals) -> list[str]:
    aggregate, facts = view.aggregate, view.first.given.facts
    header = view.first.given.header
    found = []
    if signals.steps == 0:
        found.append("No training step was recognised: step times are n/a.")
    if aggregate.excluded:
        found.append(
            f"{words.plural(aggregate.excluded, 'inferred step')} outside the marked ones left out: "
            "marks win."
        )
    if header is not None and header.dropped:
        found.append(f"{words.plural(header.dropped, 'closed step')} could not be kept and are in no figure.")
    if signals.aborted_steps:
        found.append(f"{words.plural(signals.aborted_steps, 'step')} aborted: counted, averaged nowhere.")
    if aggregate.flags[Flags.UPDATE_SKIPPED]:
        found.append(f"{words.plural(aggregate.flags[Flags.UPDATE_SKIPPED], 'update')} skipped.")
    if facts.get("trace_stopped_at_step") is not None:
        found.append(f"Tracing stopped at step {facts['trace_stopped_at_step']} as asked.")
    return found


def _phases(signals: Signals) -> list[str]:
    breakdown = signals.breakdown
    if breakdown is None:
        return []
    found = []
    for phase, rules in _ABSTAIN.items():
        if breakdown.phases[phase].coverage == 0:
            unjudged = f"; {rules} can't be judged" if rules else ""
            found.append(f"{phase.replace('_', ' ')} was never seen: n/a{unjudged}.")
    if signals.hand_written_updates:
        found.append(
            "Updates are written by hand, without an optimizer object: their time is in the residual."
        )
    return found


def _ranks(view: RunView) -> list[str]:
    across = view.across
    found = []
    if view.earlier_steps:
        before = words.plural(view.earlier_steps, "step")
        found.append(
            f"The job was restarted: figures are of attempt {view.attempts}; the one before made {before}."
        )
    if across is None:
        return found
    if not across.facts.measured:
        found.append(
            "Waiting for other ranks was not measured: a rank that is slow inside backward can't be told "
            "from one that waits there, and none is named for it."
        )
    short = [view.ranks[i] for i in sorted(across.members) if across.rows[i].work_ns is None]
    for each in short[:_LISTED]:
        made = words.plural(each.given.aggregate.count, "step")
        found.append(f"rank r{each.rank} made {made}, too few to be compared with the others.")
    if len(short) > _LISTED:
        found.append(f"{len(short) - _LISTED} more ranks made too few steps to be compared.")
    return found


def _samples(view: RunView) -> list[str]:
    return [] if view.samples else ["Host and process were not sampled: memory and processor use are n/a."]
