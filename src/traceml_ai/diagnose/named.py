"""What a framework's trainer knows by name: parts of the residual, and handlers between steps."""

from __future__ import annotations

from collections.abc import Mapping

from traceml_ai.schema.facts import ProcessFacts

TOP = 3
# The summary stays small however many handlers there are.
_LISTED = 8


def with_parts(causes: Mapping[str, float], facts: ProcessFacts) -> dict[str, float]:
    """Return the causes of the residual with what is known of ``other`` taken out, the costliest first.

    Args:
        causes: Nanoseconds per steady step; ``other`` among them, or nothing at all.
        facts: What the training process says; its parts are those of all steps but the first two,
            so they may not add up to the steady steps exactly.
    """
    steps = facts.get("residual_parts_steps", 0)
    spent = facts.get("residual_parts_ns", {})
    other = causes.get("other", 0.0)
    if not steps or not spent or other <= 0:
        return dict(causes)
    parts = {name: spent[name] / steps for name in _ordered(spent) if spent[name] > 0}
    known = sum(parts.values())
    scale = min(1.0, other / known) if known else 0.0
    rest = {name: value for name, value in causes.items() if name != "other"}
    return {**rest, **{name: scale * ns for name, ns in parts.items()}, "other": other - scale * known}


def handlers(facts: ProcessFacts, steps: int) -> dict[str, float]:
    """Return what each handler between steps took, in nanoseconds per step, the costliest first."""
    spent = facts.get("handlers_ns", {})
    return {name: spent[name] / steps for name in _ordered(spent)} if steps else {}


def costliest(per_step_ns: Mapping[str, float], steps: int) -> dict[str, float]:
    """Return the handlers that took most of the run, in seconds."""
    return {name: ns * steps / 1e9 for name, ns in [*per_step_ns.items()][:_LISTED]}


def _ordered(spent: Mapping[str, int]) -> list[str]:
    return sorted(spent, key=lambda name: spent[name], reverse=True)
