"""The conditions of a CI job: each is passed or failed with its reason."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from traceml_ai.compare.changes import DEVICE, HOST
from traceml_ai.compare.wording import signed
from traceml_ai.schema.compare import Comparison, GateResult, Verdict


class Gate(NamedTuple):
    """What was asked for; ``None`` and nothing: not asked for."""

    max_step_time_regression_pct: float | None = None
    max_memory_regression_pct: float | None = None
    fail_on: Collection[Verdict] = ()

    @property
    def wanted(self) -> bool:
        """Whether there is any condition."""
        limits = (self.max_step_time_regression_pct, self.max_memory_regression_pct)
        return bool(self.fail_on) or any(limit is not None for limit in limits)


def check(found: Comparison, gate: Gate) -> list[GateResult]:
    """Return what became of each condition, in the order of the command line's help.

    Args:
        found: A comparison with a verdict other than ``NOT_COMPARABLE``.
        gate: What was asked for.
    """
    results = []
    if gate.max_step_time_regression_pct is not None:
        results.append(_step_time(found, gate.max_step_time_regression_pct))
    if gate.max_memory_regression_pct is not None:
        results.append(_memory(found, gate.max_memory_regression_pct))
    if gate.fail_on:
        results.append(_verdict(found, gate.fail_on))
    return results


def _step_time(found: Comparison, limit_pct: float) -> GateResult:
    """Fail when a regression is there for sure and its estimate is above the limit: noise fails no job."""
    condition = f"--max-step-time-regression-pct {limit_pct:g}"
    change = found.step_time
    if change is None:
        return GateResult(condition=condition, passed=False, why="step time has no interval: too few steps")
    failed = found.verdict == "REGRESSION" and change.change_pct > limit_pct
    why = f"step time {signed(change.change_pct)} % against {limit_pct:g} % allowed"
    if not failed and found.verdict == "UNKNOWN" and change.high_pct > limit_pct:
        why += f"; up to {signed(change.high_pct)} % can't be ruled out (--fail-on UNKNOWN is stricter)"
    return GateResult(condition=condition, passed=not failed, why=why)


def _memory(found: Comparison, limit_pct: float) -> GateResult:
    """Fail when host or device memory grew by more; a limit on what was not measured can't be held."""
    condition = f"--max-memory-regression-pct {limit_pct:g}"
    gated = [each for each in found.memory if each.name in {HOST, DEVICE}]
    lost = [each.name for each in gated if (each.a is None) != (each.b is None)]
    known = [(each.change_pct, each.name) for each in gated if each.change_pct is not None]
    if lost or not known:
        what = f"peak memory ({', '.join(lost)})" if lost else "memory"
        return GateResult(condition=condition, passed=False, why=f"{what} was not measured on both sides")
    change_pct, name = max(known)
    why = f"peak memory ({name}) {signed(change_pct)} % against {limit_pct:g} % allowed"
    return GateResult(condition=condition, passed=change_pct <= limit_pct, why=why)


def _verdict(found: Comparison, fail_on: Collection[Verdict]) -> GateResult:
    condition = f"--fail-on {','.join(fail_on)}"
    failed = found.verdict in fail_on
    return GateResult(condition=condition, passed=not failed, why=f"the verdict is {found.verdict}")
