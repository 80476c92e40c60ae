"""Ranks laid side by side: which ranks, which steps, and what of a step was a rank's own."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from fakes import Header, run_info
from ranks_sim import Job, in_turn, late, simulate
from traceml_ai.analyze.aggregate import BRIEF, FULL, RECENT_RECORDS, RankAggregate
from traceml_ai.analyze.ranks import PHASES, RankPart, align
from traceml_ai.analyze.steady import steady_part
from traceml_ai.diagnose.summarize import summarize
from traceml_ai.schema.step import COMM_PLACES, INDEX, Observed, pack_comm_split, unpack_comm_split
from traceml_ai.schema.summary import encode

DEV = Observed.DEVICE


def part_of(records: np.ndarray) -> RankPart:
    aggregate = RankAggregate()
    aggregate.add(records)
    return RankPart(aggregate, steady_part(aggregate))


def test_parts_of_a_whole_survive_being_packed_to_a_thousandth() -> None:
    parts = [100_000, 0, 500_000, 0, 300_000, 100_000]
    total = sum(parts)
    assert unpack_comm_split(pack_comm_split(parts, total), total) == pytest.approx(parts, abs=total / 500)


def test_one_place_that_holds_everything_is_packed_exactly() -> None:
    for place in range(len(COMM_PLACES)):
        parts = [0] * len(COMM_PLACES)
        parts[place] = 123_456_789
        assert unpack_comm_split(pack_comm_split(parts, 123_456_789), 123_456_789) == parts


def test_a_late_ranks_step_is_all_work_and_the_others_wait() -> None:
    lockstep = align(simulate(2, 60, forward=late(2, 60, 1, 50.0, 3.0)).parts(), "host")
    assert lockstep is not None
    assert lockstep.measured
    wait = lockstep.mean(lockstep.wait_ns) / 1e6
    assert wait == pytest.approx([50, 0], abs=0.3)
    assert lockstep.mean(lockstep.transfer_ns) == pytest.approx(0.5e6, rel=0.01)
    own = lockstep.own_ns[0, :, PHASES.index("backward")]
    assert own.mean() == pytest.approx(5e6, rel=0.01)


def test_the_window_is_what_all_ranks_have() -> None:
    records = simulate(2, 60).records
    lockstep = align([part_of(records[0, :50]), part_of(records[1, 5:])], "host")
    assert lockstep is not None
    assert (lockstep.first_step, lockstep.last_step) == (5, 49)


def test_a_rank_that_ended_early_does_not_cut_the_window_down() -> None:
    records = simulate(3, 60).records
    lockstep = align([part_of(records[0]), part_of(records[1, :12]), part_of(records[2])], "host")
    assert lockstep is not None
    assert (lockstep.ranks, lockstep.left_out) == ([0, 2], [1])
    assert lockstep.last_step == 59


def test_one_rank_is_no_comparison() -> None:
    records = simulate(2, 60).records
    assert align([part_of(records[0])], "host") is None
    assert align([part_of(records[0]), part_of(records[1, :5])], "host") is None
    assert align([], "host") is None


def test_ranks_without_common_steps_are_not_compared() -> None:
    records = simulate(2, 60).records
    assert align([part_of(records[0, :30]), part_of(records[1, 30:])], "host") is None


def test_a_rank_that_missed_its_first_step_is_laid_beside_the_right_ones() -> None:
    records = simulate(2, 60, forward=in_turn(2, 60, 20.0, 3.0)).records.copy()
    behind = records[1, 1:].copy()
    behind[:, INDEX["step"]] -= 1
    lockstep = align([part_of(records[0]), part_of(behind)], "host")
    assert lockstep is not None
    assert (lockstep.wait_ns.sum(axis=0) > 15e6).mean() > 0.9
    assert lockstep.first_step >= 1


def test_without_measured_waiting_nothing_is_shifted() -> None:
    records = simulate(2, 60, measured=False).records.copy()
    records[1, :, INDEX["step"]] -= 1
    lockstep = align([part_of(records[0]), part_of(records[1])], "host")
    assert lockstep is not None
    assert not lockstep.measured
    assert lockstep.own_ns[:, :, PHASES.index("backward")].sum() == 0


def test_ranks_with_hardly_a_common_step_are_not_shifted_into_one() -> None:
    records = simulate(2, 40).records.copy()
    records[1, :, INDEX["step"]] += 35
    lockstep = align([part_of(records[0]), part_of(records[1])], "host")
    assert lockstep is None


def test_the_devices_clock_has_its_own_durations_and_no_measured_waiting() -> None:
    records = simulate(2, 60).records.copy()
    for name in ("forward", "backward", "optimizer", "step"):
        records[:, :, INDEX[f"dev_{name}_ns"]] = 7_000_000
    records[:, :, INDEX["observed"]] |= int(DEV)
    lockstep = align([part_of(records[0]), part_of(records[1])], "device")
    assert lockstep is not None
    assert not lockstep.measured
    assert lockstep.own_ns[0, 0, PHASES.index("forward")] == 7e6


def test_a_long_run_is_compared_over_its_whole_length() -> None:
    steps = RECENT_RECORDS + 1000
    job = simulate(2, steps, jitter=0.0, forward=late(2, steps, 1, 20.0, 3.0))
    lockstep = align(job.parts(), "host")
    assert lockstep is not None
    assert lockstep.steps.sum() > 0.99 * steps - 64
    assert lockstep.mean(lockstep.wait_ns) == pytest.approx([20e6, 0], rel=0.01, abs=1)
    assert job.summary().diagnosis.scope.ranks == [1]


def test_ranks_late_in_turn_are_found_in_a_long_run_as_well() -> None:
    steps = RECENT_RECORDS + 1000
    finding = simulate(2, steps, forward=in_turn(2, steps, 20.0, 3.0)).summary().diagnosis
    assert finding.evidence["persistence"] == "rotating"


def test_a_long_balanced_run_names_nobody() -> None:
    steps = RECENT_RECORDS + 1000
    assert simulate(2, steps).summary().step_time.diagnosis == "COMPUTE_BOUND"


def test_ranks_of_different_lengths_share_buckets() -> None:
    long = simulate(2, 20_000, jitter=0.0).records
    lockstep = align([part_of(long[0]), part_of(long[1, :12_000])], "host")
    assert lockstep is not None
    assert 11_000 < lockstep.last_step < 12_000


# --- the table ---------------------------------------------------------------------------------


def test_each_rank_has_a_row_and_the_figures_over_all_have_median_worst_and_skew() -> None:
    step_time = simulate(4, 60, forward=late(4, 60, 2, 7.0, 3.0)).summary(node="node1").step_time
    assert [row.rank for row in step_time.ranks] == [0, 1, 2, 3]
    assert step_time.ranks[2].score is not None
    assert step_time.ranks[2].score < 0.7
    assert step_time.ranks[0].wait_ms == pytest.approx(7, abs=0.5)
    assert {row.node for row in step_time.ranks} == {"node1"}
    across = step_time.across_ranks
    assert across is not None
    forward = across.phases["forward"]
    assert forward.worst_rank == 2
    assert forward.skew_pct == pytest.approx(233, abs=10)
    assert across.slowdown_ratio == pytest.approx(17.7 / 10.7, abs=0.05)


def test_a_rank_that_was_left_out_is_in_the_table_with_the_reason() -> None:
    inputs = simulate(3, 60).with_only(1, 12)
    summary = summarize(run_info(), inputs, [])
    row = next(row for row in summary.step_time.ranks if row.rank == 1)
    assert row.left_out is not None
    assert "too few steps" in row.left_out
    assert any("rank r1" in warning and "12 steps" in warning for warning in summary.warnings)


def test_a_rank_without_steps_is_in_the_table_and_in_no_comparison() -> None:
    inputs = simulate(3, 60).with_only(2, 0)
    row = next(row for row in summarize(run_info(), inputs, []).step_time.ranks if row.rank == 2)
    assert (row.steps, row.left_out, row.step_ms) == (0, "no steps", None)


def test_processes_that_are_not_one_group_are_not_compared() -> None:
    inputs = simulate(2, 60, forward=late(2, 60, 1, 50.0, 3.0)).inputs(world_size=1)
    summary = summarize(run_info(), inputs, [])
    assert summary.step_time.across_ranks is None
    assert len(summary.step_time.ranks) == 2


def test_of_many_ranks_the_worst_and_the_typical_are_listed() -> None:
    job = simulate(100, 30, forward=late(100, 30, 77, 50.0, 3.0))
    summary = job.summary()
    rows = [row.rank for row in summary.step_time.ranks]
    assert 0 in rows
    assert 77 in rows
    assert len(rows) < 50
    assert summary.step_time.across_ranks is not None
    assert (summary.step_time.across_ranks.compared, summary.step_time.across_ranks.listed) == (
        100,
        len(rows),
    )
    assert len(encode(summary)) < 200_000


def test_many_processes_that_are_not_compared_are_listed_by_their_steps() -> None:
    inputs = simulate(70, 30, forward=late(70, 30, 55, 50.0, 3.0)).inputs(world_size=1)
    rows = [row.rank for row in summarize(run_info(), inputs, []).step_time.ranks]
    assert 0 in rows
    assert len(rows) < 50


def test_ranks_of_several_nodes_are_called_by_both() -> None:
    job = simulate(2, 60, forward=late(2, 60, 1, 50.0, 3.0))
    inputs = [
        each._replace(facts={**each.facts, "node": f"node{rank}"}) for rank, each in enumerate(job.inputs())
    ]
    summary = summarize(run_info(), inputs, [])
    finding = summary.diagnosis
    assert summary.run.nodes == 2
    assert "Rank r1 on node1 takes longer" in finding.why
    assert (finding.scope.ranks, finding.scope.node) == ([1], "node1")


def test_only_the_first_few_ranks_that_were_left_out_are_named_one_by_one() -> None:
    job = simulate(30, 60)
    inputs = job.inputs()
    for rank in range(10):
        inputs[rank] = job.with_only(rank, 12)[rank]
    warnings = summarize(run_info(), inputs, []).warnings
    assert sum("too few to be compared" in warning for warning in warnings) == 8
    assert "2 more ranks made too few steps to be compared." in warnings


def test_ranks_with_fewer_steps_than_a_median_needs_are_not_compared() -> None:
    assert simulate(2, 9).summary().step_time.across_ranks is None


def test_standing_at_collectives_makes_no_other_phase_heavy() -> None:
    job = simulate(2, 60, backward=late(2, 60, 1, 50.0, 5.0), transfer_ms=6.0)
    records = job.records.copy()
    stood = records[:, :, INDEX["comm_ns"]]
    # Gradients are reduced by hand after the backward: the standing is in no phase of the step.
    records[:, :, INDEX["backward_ns"]] -= stood
    records[:, :, INDEX["residual_other_ns"]] += stood
    for rank in range(2):
        for step in range(60):
            total = int(stood[rank, step])
            records[rank, step, INDEX["comm_split"]] = pack_comm_split([0, 0, 0, 0, total, 0], total)
    summary = job._replace(records=records).summary()
    assert summary.diagnosis.kind == "COMPUTE_STRAGGLER"
    assert "RESIDUAL_HEAVY" not in {finding.kind for finding in summary.findings}


def test_ranks_kept_in_brief_are_compared_like_the_others() -> None:
    job = simulate(4, 5_000, jitter=0.002, forward=late(4, 5_000, 2, 20.0, 3.0))
    inputs = job.inputs()
    for rank in range(1, 4):
        aggregate = RankAggregate(BRIEF)
        aggregate.add(job.records[rank])
        inputs[rank] = inputs[rank]._replace(aggregate=aggregate)
    summary = summarize(run_info(), inputs, [])
    assert summary.diagnosis.scope.ranks == [2]
    assert summary.diagnosis.evidence["excess_ms"] == pytest.approx(20, rel=0.02)
    assert summary.step_time.ranks[2].step_ms == pytest.approx(30.7, rel=0.02)


def test_brief_is_a_small_part_of_full() -> None:
    records = simulate(2, 5_000).records[0]
    sizes = []
    for detail in (FULL, BRIEF):
        aggregate = RankAggregate(detail)
        aggregate.add(records)
        sizes.append(len(pickle.dumps(aggregate)))
    assert sizes[1] < 250_000 < 10 * sizes[1] < sizes[0]


def test_a_process_beside_the_job_does_not_keep_its_ranks_from_being_compared() -> None:
    job = simulate(2, 60, forward=late(2, 60, 1, 50.0, 3.0))
    beside = simulate(2, 60, seed=9).inputs(world_size=1)[0]
    beside = beside._replace(facts={**beside.facts, "rank": None}, header=Header(pid=7))
    summary = summarize(run_info(), [beside, *job.inputs()], [])
    assert summary.diagnosis.scope.ranks == [1]
    assert len(summary.step_time.ranks) == 3
    assert summary.step_time.across_ranks is not None
    assert summary.step_time.across_ranks.compared == 2
    assert [row.left_out for row in summary.step_time.ranks] == [None, None, "not of this job"]
    assert not any("too few" in warning for warning in summary.warnings)


def test_of_two_jobs_one_after_the_other_the_last_ones_ranks_are_compared() -> None:
    first = simulate(2, 60, forward=late(2, 60, 0, 50.0, 3.0)).inputs()
    second = simulate(2, 60, forward=late(2, 60, 1, 50.0, 3.0))
    later = second.records.copy()
    for name in ("close_ns", "begin_ns", "open_ns", "arrival_ns"):
        later[:, :, INDEX[name]] += 60_000_000_000
    summary = summarize(run_info(), [*Job(later).inputs(), *first], [])
    assert summary.diagnosis.scope.ranks == [1]


def test_a_rank_that_waits_longer_from_some_step_on_is_not_said_to_be_slower_in_backward() -> None:
    forward = np.full((2, 400), 10.0)
    forward[1, 200:] += 40
    summary = simulate(2, 400, forward=forward).summary()
    (finding,) = [finding for finding in summary.findings if finding.kind == "SLOWDOWN"]
    assert finding.scope.phase is None
    assert "what it stands at collectives grew by" in finding.why
    assert "Look at the other ranks" in finding.next


def test_a_rank_that_is_slower_itself_from_some_step_on_is() -> None:
    forward = np.full((2, 400), 10.0)
    forward[0, 200:] += 40
    summary = simulate(2, 400, forward=forward).summary()
    (finding,) = [finding for finding in summary.findings if finding.kind == "SLOWDOWN"]
    assert finding.scope.phase == "forward"
