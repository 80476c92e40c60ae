"""Which of several ranks ended a run: the first that did not end in order."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fakes import Header, run_info
from ranks_sim import simulate
from traceml_ai.diagnose.summarize import RankInput, summarize
from traceml_ai.schema.run import Death, Status
from traceml_ai.schema.step import INDEX
from traceml_ai.schema.summary import Summary

KILL, SEGV, TERM = 9, 11, 15


def died(pid: int, status: int | None, at: int) -> Death:
    return Death(pid=pid, status=status, t_ns=at)


def summary_of(*deaths: Death, status: Status = "failed", facts: dict[int, Any] | None = None) -> Summary:
    inputs = [
        each._replace(facts={**each.facts, **(facts or {}).get(rank, {})})
        for rank, each in enumerate(simulate(2, 30).inputs())
    ]
    return summarize(replace(run_info(status=status), deaths=list(deaths), exit_code=1), inputs, [])


@pytest.mark.parametrize(("number", "name"), [(KILL, "SIGKILL"), (SEGV, "SIGSEGV"), (62, "signal 62")])
def test_a_rank_that_was_killed_is_named_with_its_signal_and_its_last_step(number: int, name: str) -> None:
    summary = summary_of(died(101, number, 10), died(100, TERM, 20))
    assert summary.run.ended_by == f"rank r1 died of {name} after 30 steps"
    assert [row.ended for row in summary.step_time.ranks] == ["SIGTERM", name]


def test_a_core_dump_does_not_hide_the_signal() -> None:
    assert "SIGSEGV" in str(summary_of(died(101, SEGV | 0x80, 10)).run.ended_by)


def test_the_first_rank_to_end_is_named_and_not_those_it_dragged_along() -> None:
    lost = {0: {"exception": "RuntimeError"}, 1: {"exception": "ValueError"}}
    summary = summary_of(died(100, 1 << 8, 20), died(101, 1 << 8, 10), facts=lost)
    assert summary.run.ended_by == "rank r1 ended with ValueError after 30 steps"
    assert summary.run.exception == "ValueError"


def test_a_killed_rank_has_no_exception_though_the_others_have() -> None:
    summary = summary_of(died(101, KILL, 10), facts={0: {"exception": "RuntimeError"}})
    assert summary.run.exception is None
    assert summary.step_time.ranks[0].ended == "RuntimeError"


def test_a_rank_that_left_with_an_exit_code_is_named_with_it() -> None:
    assert summary_of(died(100, 0, 5), died(101, 3 << 8, 10)).run.ended_by == (
        "rank r1 ended with exit code 3 after 30 steps"
    )


def test_a_rank_of_which_only_the_end_is_known_is_named_as_such() -> None:
    summary = summary_of(died(101, None, 10))
    assert summary.run.ended_by == "rank r1 ended, not known why, after 30 steps"
    assert summary.step_time.ranks[1].ended == "unknown"


def test_a_rank_that_reached_its_exit_is_not_blamed_for_an_unknown_end() -> None:
    assert summary_of(died(101, None, 10), facts={1: {"clean_exit": True}}).run.ended_by is None


@pytest.mark.parametrize("status", ["completed", "running"])
def test_nobody_ends_a_run_that_completed_or_goes_on(status: Status) -> None:
    assert summary_of(died(101, KILL, 10), status=status).run.ended_by is None


def test_processes_that_never_trained_are_not_named() -> None:
    assert summary_of(died(999, KILL, 10)).run.ended_by is None


def test_a_rank_without_a_number_is_a_training_process() -> None:
    inputs = [
        each._replace(facts={**each.facts, "rank": None}, header=Header(pid=100 + i))
        for i, each in enumerate(simulate(2, 30).inputs())
    ]
    run = replace(run_info(status="failed"), deaths=[died(100, KILL, 1)])
    assert "a training process died of SIGKILL" in str(summarize(run, inputs, []).run.ended_by)


def attempts(*steps: int, last: int) -> Summary:
    inputs = [
        each._replace(
            facts={**each.facts, "attempt": attempt}, header=Header(pid=100 * attempt + rank, rank=rank)
        )
        for attempt, made in enumerate(steps)
        for rank, each in enumerate(simulate(2, made).inputs() if made else simulate(2, 1).with_only(0, 0))
    ]
    assert len(steps) == last + 1
    return summarize(run_info(), inputs, [])


def test_figures_of_a_restarted_job_are_of_its_last_attempt() -> None:
    summary = attempts(90, 40, last=1)
    assert summary.run.attempts == 2
    assert summary.run.steps == 40
    assert [(row.rank, row.pid) for row in summary.step_time.ranks] == [(0, 100), (1, 101)]
    assert (
        "The job was restarted: figures are of attempt 2; the one before made 90 steps." in summary.warnings
    )


def test_a_job_that_was_never_restarted_says_nothing_of_attempts() -> None:
    summary = attempts(40, last=0)
    assert summary.run.attempts == 1
    assert not any("attempt" in warning for warning in summary.warnings)


def test_an_attempt_of_one_process_is_told_from_the_one_before_too() -> None:
    inputs = simulate(2, 40).inputs(world_size=1)
    last = inputs[1]._replace(facts={**inputs[1].facts, "attempt": 1})
    summary = summarize(run_info(), [inputs[0], last], [])
    assert len(summary.step_time.ranks) == 1
    assert any("attempt 2" in warning for warning in summary.warnings)


HOUR_NS = 3_600 * 10**9


def elastic(rank: int, steps: int, *, at_ns: int, node: int = 0, attempt: int = 0, pid: int = 0) -> RankInput:
    """One process of a job of two ranks that began at a time; node k's torchrun is process 10 + k."""
    job = simulate(2, steps)
    for name in ("begin_ns", "open_ns", "close_ns", "arrival_ns"):
        job.records[:, :, INDEX[name]] += at_ns
    each = job.inputs()[rank]
    each.facts.update({"node": f"node{node}", "agent": 10 + node, "attempt": attempt})
    return each._replace(header=Header(pid=pid, rank=rank))


def pids(summary: Summary) -> list[int | None]:
    return [row.pid for row in summary.step_time.ranks]


def test_a_node_whose_count_stays_as_another_one_failed_is_of_the_last_attempt_too() -> None:
    # PyTorch's torchrun counts failures of its own ranks only.
    first = [elastic(0, 90, at_ns=0, pid=1), elastic(1, 90, at_ns=0, node=1, pid=2)]
    second = [
        elastic(0, 40, at_ns=HOUR_NS, pid=3),
        elastic(1, 40, at_ns=HOUR_NS, node=1, attempt=1, pid=4),
    ]
    summary = summarize(run_info(), [*first, *second], [])
    assert (pids(summary), summary.run.attempts, summary.run.steps) == ([3, 4], 2, 40)


def test_a_node_that_is_gone_for_good_is_of_the_attempt_before() -> None:
    first = [elastic(0, 90, at_ns=0, pid=1), elastic(1, 90, at_ns=0, node=1, pid=2)]
    summary = summarize(run_info(), [*first, elastic(0, 40, at_ns=HOUR_NS, pid=3)], [])
    assert (pids(summary), summary.run.attempts) == ([3], 2)
    assert any("attempt 2" in warning for warning in summary.warnings)


def test_nodes_that_fail_in_turn_are_three_attempts() -> None:
    given = [elastic(0, 90, at_ns=0, pid=1), elastic(1, 90, at_ns=0, node=1, pid=2)]
    given += [elastic(0, 50, at_ns=HOUR_NS, pid=3), elastic(1, 50, at_ns=HOUR_NS, node=1, attempt=1, pid=4)]
    given += [
        elastic(0, 40, at_ns=2 * HOUR_NS, attempt=1, pid=5),
        elastic(1, 40, at_ns=2 * HOUR_NS, node=1, attempt=1, pid=6),
    ]
    summary = summarize(run_info(), given, [])
    assert (pids(summary), summary.run.attempts, summary.run.steps) == ([5, 6], 3, 40)


def test_a_rank_that_ended_early_is_still_of_the_only_attempt() -> None:
    given = [elastic(0, 90, at_ns=0, pid=1), elastic(1, 20, at_ns=0, node=1, pid=2)]
    summary = summarize(run_info(), given, [])
    assert (pids(summary), summary.run.attempts) == ([1, 2], 1)
