"""Simulated synchronous jobs whose late rank is known: who is named, for which phase, and at what price."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fakes import FIRST_BEGIN_NS
from ranks_sim import ORDINARY_MS, Job, in_turn, late, now_and_then, simulate
from traceml_ai.analyze.ranks import align
from traceml_ai.analyze.stragglers import Straggling, find_straggling, scores, typical, what_if
from traceml_ai.schema.step import EXCLUSIVE_COLUMNS, INDEX, pack_comm_split
from traceml_ai.schema.summary import Finding, Summary

STRAGGLERS = {"INPUT_STRAGGLER", "COMPUTE_STRAGGLER", "H2D_STRAGGLER", "STRAGGLER"}
PLACES = [
    ("input_wait", "input_wait", "INPUT_STRAGGLER"),
    ("h2d", "h2d", "H2D_STRAGGLER"),
    ("forward", "forward", "COMPUTE_STRAGGLER"),
    ("backward", "backward", "COMPUTE_STRAGGLER"),
    ("optimizer", "optimizer", "COMPUTE_STRAGGLER"),
    ("residual_other", "residual", "STRAGGLER"),
    ("between_other", "between_steps", "STRAGGLER"),
]


def straggling(job: Job) -> Straggling | None:
    lockstep = align(job.parts(), "host")
    assert lockstep is not None
    return find_straggling(lockstep)


def named(summary: Summary) -> list[Finding]:
    return [finding for finding in summary.findings if finding.kind in STRAGGLERS]


def delayed(ranks: int, steps: int, column: str, rank: int, ms: float, **more: Any) -> Job:
    usual = ORDINARY_MS.get(column, 0.2)
    more[column] = late(ranks, steps, rank, ms, usual)
    return simulate(ranks, steps, **more)


@pytest.mark.parametrize(("column", "phase", "kind"), PLACES)
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_that_is_late_in_every_step_is_named_with_its_phase(
    ranks: int, column: str, phase: str, kind: str
) -> None:
    summary = delayed(ranks, 60, column, 1, 50.0).summary()
    assert summary.diagnosis.kind == kind
    assert summary.diagnosis.severity == "critical"
    assert summary.diagnosis.scope.ranks == [1]
    assert summary.diagnosis.scope.phase == phase
    assert summary.diagnosis.evidence["persistence"] == "steady"
    assert summary.diagnosis.evidence["excess_ms"] == pytest.approx(50, rel=0.05)


def test_the_gain_is_a_step_in_which_the_late_rank_runs_like_the_others() -> None:
    finding = delayed(4, 60, "forward", 2, 50.0).summary().diagnosis
    assert finding.estimate is not None
    assert finding.estimate.step_ms == pytest.approx(10.7, abs=0.5)
    assert finding.evidence["step_ms"] == pytest.approx(60.8, abs=1)
    assert finding.evidence["step_ms_if_like_others"] == pytest.approx(10.8, abs=0.5)


def test_what_the_others_wait_is_no_finding_of_its_own() -> None:
    summary = delayed(2, 60, "input_wait", 1, 50.0).summary()
    assert [finding.kind for finding in summary.findings if finding.severity != "info"] == ["INPUT_STRAGGLER"]


def test_input_that_all_ranks_wait_for_stays_a_finding_beside_the_late_rank() -> None:
    summary = simulate(4, 60, input_wait=late(4, 60, 3, 30.0, 20.0)).summary()
    assert {finding.kind for finding in summary.findings} >= {"INPUT_STRAGGLER", "INPUT_BOUND"}


def test_the_others_are_the_victims_and_those_who_wait_most_come_first() -> None:
    forward = late(3, 60, 1, 50.0, 3.0)
    forward[2] += 4
    found = straggling(simulate(3, 60, forward=forward))
    assert found is not None
    assert found.victims == [0, 2]


def test_ranks_that_are_slow_together_are_named_together() -> None:
    forward = late(8, 60, 6, 20.0, 3.0)
    forward[7] += 19
    finding = simulate(8, 60, forward=forward).summary().diagnosis
    assert finding.scope.ranks == [6, 7]
    assert "Rank r6 and rank r7 take longer in forward" in finding.why


def test_a_slow_half_is_not_the_norm_that_the_fast_half_is_measured_by() -> None:
    forward = np.full((4, 60), 3.0)
    forward[2:] += 20
    found = straggling(simulate(4, 60, forward=forward))
    assert found is not None
    assert found.culprits == [2, 3]


def test_a_long_list_of_ranks_is_cut_in_the_sentence() -> None:
    forward = np.full((16, 60), 3.0)
    forward[:6] += 20
    why = simulate(16, 60, forward=forward).summary().diagnosis.why
    assert "rank r3 and 2 more" in why
    assert "10 others wait" in why


@pytest.mark.parametrize("ranks", [2, 4, 16])
@pytest.mark.parametrize("jitter", [0.01, 0.1])
def test_nobody_is_named_in_a_balanced_job(ranks: int, jitter: float) -> None:
    summary = simulate(ranks, 100, jitter=jitter).summary()
    assert named(summary) == []
    assert summary.step_time.diagnosis == "COMPUTE_BOUND"


def test_half_a_millisecond_is_nothing() -> None:
    backward = np.array([[2.9], [3.4]])
    quiet: dict[str, Any] = {"forward": 0.4, "optimizer": 0.2, "residual_other": 0.1, "input_wait": 0.1}
    assert named(simulate(2, 100, backward=backward, transfer_ms=0.2, **quiet).summary()) == []


def test_a_delay_that_goes_round_is_said_and_nobody_is_named() -> None:
    finding = simulate(4, 100, forward=in_turn(4, 100, 30.0, 3.0)).summary().diagnosis
    assert finding.kind == "STRAGGLER"
    assert finding.scope.ranks is None
    assert finding.scope.phase == "forward"
    assert finding.evidence["persistence"] == "rotating"
    assert "no rank is to blame" in finding.why
    assert finding.estimate is None


def test_a_delay_in_one_step_of_many_is_one_off_and_its_rank_is_named() -> None:
    job = simulate(2, 600, forward=now_and_then(2, 600, 1, 100, 150.0, 3.0))
    found = straggling(job)
    assert found is not None
    assert (found.persistence, found.culprits, found.phase) == ("one-off", [1], "forward")
    assert found.excess_ns == pytest.approx(150e6, rel=0.05)
    assert found.late_share == pytest.approx(0.01, abs=0.001)


def test_single_late_steps_that_chance_could_put_on_one_rank_name_nobody() -> None:
    assert straggling(simulate(2, 200, forward=now_and_then(2, 200, 1, 100, 150.0, 3.0))) is None


def test_single_late_steps_of_different_ranks_name_nobody() -> None:
    forward = np.full((4, 400), 3.0)
    for at in range(8):
        forward[at % 4, 40 + at * 40] += 150
    assert straggling(simulate(4, 400, forward=forward)) is None


def test_late_steps_that_hardly_cost_anything_name_nobody() -> None:
    assert straggling(simulate(2, 2000, forward=now_and_then(2, 2000, 1, 200, 20.0, 3.0))) is None


def test_a_delay_that_comes_and_goes_without_being_rare_or_usual_names_nobody() -> None:
    job = simulate(2, 200, forward=now_and_then(2, 200, 1, 3, 8.0, 3.0))
    assert straggling(job) is None


def test_a_delay_in_several_phases_is_a_straggler_without_a_phase() -> None:
    both: dict[str, Any] = {
        name: late(2, 60, 0, 12.0, 2.0) for name in ("input_wait", "forward", "optimizer")
    }
    finding = simulate(2, 60, **both).summary().diagnosis
    assert (finding.kind, finding.scope.ranks, finding.scope.phase) == ("STRAGGLER", [0], None)
    assert "in several phases" in finding.why


def test_a_delay_too_small_to_matter_is_not_reported() -> None:
    summary = simulate(8, 100, forward=late(8, 100, 3, 1.2, 6.0), backward=20.0).summary()
    assert named(summary) == []


# --- where waiting was not measured ------------------------------------------------------------


@pytest.mark.parametrize(("column", "phase", "kind"), [place for place in PLACES if place[0] != "backward"])
def test_without_measured_waiting_a_rank_late_before_backward_is_still_named(
    column: str, phase: str, kind: str
) -> None:
    finding = delayed(2, 60, column, 1, 50.0, measured=False).summary().diagnosis
    assert (finding.kind, finding.scope.ranks, finding.scope.phase) == (kind, [1], phase)
    assert finding.confidence == "medium"


def test_without_measured_waiting_a_rank_late_inside_backward_is_not_guessed() -> None:
    summary = delayed(2, 60, "backward", 1, 50.0, measured=False).summary()
    assert named(summary) == []
    assert any("inside backward" in warning for warning in summary.warnings)


# --- transfer ----------------------------------------------------------------------------------


def test_transfer_is_what_even_the_last_rank_stands_there() -> None:
    summary = simulate(2, 60, transfer_ms=12.0, forward=late(2, 60, 1, 2.0, 3.0)).summary()
    finding = next(finding for finding in summary.findings if finding.kind == "COMM_BOUND")
    assert finding.severity == "critical"
    assert finding.evidence["transfer_ms"] == pytest.approx(12, rel=0.02)
    assert summary.step_time.across_ranks is not None
    assert summary.step_time.across_ranks.transfer_ms == pytest.approx(12, rel=0.02)
    assert "COMPUTE_BOUND" not in {finding.kind for finding in summary.findings}


def test_some_transfer_beside_mostly_computing_is_no_alarm() -> None:
    summary = simulate(2, 60, transfer_ms=4.0).summary()
    assert summary.step_time.diagnosis == "COMPUTE_BOUND"
    finding = next(finding for finding in summary.findings if finding.kind == "COMM_BOUND")
    assert finding.severity == "info"


def test_waiting_for_a_late_rank_is_no_transfer() -> None:
    summary = delayed(2, 60, "forward", 1, 50.0).summary()
    assert "COMM_BOUND" not in {finding.kind for finding in summary.findings}


# --- the what-if, at the values of three jobs of the public study -----------------------------------


def slowdown(job: Job) -> tuple[float, float | None, Straggling | None]:
    lockstep = align(job.parts(), "host")
    assert lockstep is not None
    found = what_if(lockstep)
    return found.slowdown, found.from_slowest, find_straggling(lockstep)


def test_a_job_slowed_1_97_times_by_few_workers_is_all_theirs() -> None:
    forward = np.full((64, 60), 10.0)
    forward[[5, 40]] += 0.97 * 17.7
    ratio, from_slowest, found = slowdown(simulate(64, 60, forward=forward, jitter=0.002))
    assert ratio == pytest.approx(1.97, abs=0.02)
    assert from_slowest == pytest.approx(1.0, abs=0.02)
    assert found is not None
    assert (found.persistence, found.culprits) == ("steady", [5, 40])


def test_a_job_slowed_1_54_times_by_its_last_stage_is_not_the_slowest_few() -> None:
    forward = np.full((64, 60), 10.0)
    forward[48:] += 0.54 * 17.7
    ratio, from_slowest, found = slowdown(simulate(64, 60, forward=forward, jitter=0.002))
    assert ratio == pytest.approx(1.54, abs=0.02)
    assert from_slowest is not None
    assert from_slowest < 0.1
    assert found is not None
    assert found.culprits == list(range(48, 64))


def test_a_job_slowed_1_18_times_by_uneven_work_names_nobody() -> None:
    rng = np.random.default_rng(3)
    forward = 10 + rng.uniform(0, 2 * 0.12 * 17.7, (64, 200))
    ratio, from_slowest, found = slowdown(simulate(64, 200, forward=forward, jitter=0.002))
    assert ratio == pytest.approx(1.18, abs=0.08)
    assert from_slowest is not None
    assert from_slowest < 0.1
    assert found is None


def test_there_is_nothing_to_share_out_where_there_is_no_slowdown() -> None:
    ratio, from_slowest, _ = slowdown(simulate(2, 60, jitter=0.0))
    assert ratio == pytest.approx(1.0, abs=0.001)
    assert from_slowest is None


def test_the_score_is_the_fastest_ranks_median_over_a_ranks_own() -> None:
    lockstep = align(simulate(3, 60, jitter=0.0, forward=late(3, 60, 1, 10.7, 3.0)).parts(), "host")
    assert lockstep is not None
    assert scores(lockstep) == pytest.approx([1.0, 0.5, 1.0], abs=0.02)


def test_of_two_ranks_the_faster_is_typical() -> None:
    assert typical(np.array([[5.0], [3.0]])).tolist() == [3.0]
    assert typical(np.array([[5.0], [3.0], [4.0]])).tolist() == [4.0]


def test_a_rank_that_is_usually_slower_but_seldom_last_is_not_named() -> None:
    forward = late(3, 90, 1, 2.0, 3.0)
    forward[0, ::3] += 4
    assert straggling(simulate(3, 90, forward=forward)) is None


def test_noise_just_above_the_limit_does_not_hide_who_is_late_by_much() -> None:
    forward = now_and_then(2, 600, 1, 100, 150.0, 3.0)
    forward[0, 50::80] += 10
    found = straggling(simulate(2, 600, forward=forward))
    assert found is not None
    assert (found.persistence, found.culprits) == ("one-off", [1])


def test_stalls_that_are_waiting_for_a_named_rank_are_not_reported_twice() -> None:
    summary = simulate(2, 600, forward=now_and_then(2, 600, 1, 100, 300.0, 3.0)).summary()
    assert summary.diagnosis.kind == "COMPUTE_STRAGGLER"
    assert "PERIODIC_STALL" not in {finding.kind for finding in summary.findings}


def test_stalls_that_all_ranks_have_stay_a_finding() -> None:
    forward = now_and_then(2, 600, 1, 100, 300.0, 3.0)
    forward[0] = forward[1]
    assert simulate(2, 600, forward=forward).summary().diagnosis.kind == "PERIODIC_STALL"


@pytest.mark.parametrize(("ms", "reported"), [(8.0, False), (60.0, True)])
def test_on_a_busy_host_ranks_late_in_turn_are_no_news_unless_they_are_late_by_most_of_the_step(
    ms: float, *, reported: bool
) -> None:
    job = simulate(2, 100, forward=in_turn(2, 100, ms, 3.0))
    assert bool(named(job.summary(host_cpu_pct=97.0))) == reported
    assert named(job.summary(host_cpu_pct=20.0))


@pytest.mark.parametrize(("ms", "reported"), [(8.0, False), (20.0, True)])
def test_where_other_programs_run_a_rank_is_named_if_it_takes_more_than_twice_as_long(
    ms: float, *, reported: bool
) -> None:
    job = delayed(2, 60, "forward", 1, ms)
    assert bool(named(job.summary(host_cpu_pct=97.0, own_cores=0.5))) == reported
    assert named(job.summary(host_cpu_pct=97.0, own_cores=1.0))  # of two: it is this job that keeps them busy
    assert named(job.summary(host_cpu_pct=20.0))


def alone(job: Job) -> Job:
    """The same ranks without a collective: nobody waits."""
    records = job.records.copy()
    stood = records[:, :, INDEX["comm_ns"]].copy()
    records[:, :, INDEX["comm_ns"]] = 1
    records[:, :, INDEX["backward_ns"]] -= stood - 1
    lengths = sum(records[:, :, INDEX[name]] for name in EXCLUSIVE_COLUMNS)
    records[:, :, INDEX["close_ns"]] = FIRST_BEGIN_NS + np.cumsum(lengths, axis=1)
    records[:, :, INDEX["begin_ns"]] = records[:, :, INDEX["close_ns"]] - lengths
    return Job(records)


@pytest.mark.parametrize(
    "forward",
    [late(2, 600, 1, 50.0, 3.0), now_and_then(2, 600, 1, 100, 150.0, 3.0), in_turn(2, 600, 30.0, 3.0)],
    ids=["steady", "one-off", "rotating"],
)
def test_a_slow_rank_that_nobody_waits_for_is_no_straggler(forward: Any) -> None:
    assert straggling(alone(simulate(2, 600, forward=forward))) is None


def test_where_one_rank_loads_for_all_the_input_is_slow_and_no_rank_is_late() -> None:
    job = simulate(2, 60, input_wait=late(2, 60, 0, 50.0, 0.3))
    records = job.records.copy()
    # The other waits for the batch in its own input, and hardly at the gradients.
    stood = records[1, :, INDEX["comm_ns"]].copy()
    records[1, :, INDEX["backward_ns"]] -= stood - 500_000
    records[1, :, INDEX["input_wait_ns"]] += stood - 500_000
    for step in range(60):
        total = int(stood[step])
        records[1, step, INDEX["comm_split"]] = pack_comm_split([total - 500_000, 0, 500_000, 0, 0, 0], total)
    summary = Job(records).summary()
    assert summary.diagnosis.kind == "INPUT_BOUND"
    assert summary.diagnosis.severity == "critical"
    assert summary.diagnosis.evidence["source_ranks"] == [0]
    assert "rank r0 fetches for the others" in summary.diagnosis.why
    assert named(summary) == []
