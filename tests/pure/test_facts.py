"""Warm-up, breakdown, time accounting, rates, curves, memory and processors: facts without judgement."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import FIRST_BEGIN_NS, MS, SECOND, SEEN, START_NS, Run, sample, samples_over
from traceml_ai.analyze import curves, hosts, rates
from traceml_ai.analyze.aggregate import RankAggregate
from traceml_ai.analyze.breakdown import Breakdown, break_down, user_phase_names
from traceml_ai.analyze.drift import find_drift
from traceml_ai.analyze.stalls import find_stalls
from traceml_ai.analyze.steady import Steady, pooled, steady_part
from traceml_ai.analyze.timeline import timeline
from traceml_ai.analyze.warmup import warmup_steps
from traceml_ai.schema.step import Flags, Observed


def aggregate(run: Run) -> RankAggregate:
    return run.rank().aggregate


def steady(run: Run) -> Steady:
    return steady_part(aggregate(run))


def breakdown(run: Run, names: tuple[str, ...] = ()) -> Breakdown:
    found = break_down(steady(run), aggregate(run).sums, "host", names)
    assert found is not None
    return found


# --- warm-up -----------------------------------------------------------------------------------


def warmup(forward: Any, n: int = 100, **values: Any) -> int:
    found = aggregate(Run().steps(n, forward=forward, **values))
    return warmup_steps(found.head(), found.count)


def at(n: int, **slow: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    series = np.full(n, 3.0)
    for index, value in slow.items():
        series[int(index[1:])] = value
    return series


def test_steps_that_are_alike_have_no_warm_up() -> None:
    assert warmup(3.0) == 0


def test_two_compilations_at_the_start_are_warm_up() -> None:
    assert warmup(at(100, _0=5000, _1=3000)) == 2


def test_a_slow_step_after_an_ordinary_one_still_belongs_to_the_warm_up() -> None:
    assert warmup(at(100, _0=5000, _2=900)) == 3


def test_a_stall_in_the_middle_is_no_warm_up() -> None:
    assert warmup(at(100, _50=5000)) == 0


def test_warm_up_takes_at_most_a_fifth_of_the_run() -> None:
    assert warmup(np.where(np.arange(100) < 40, 90.0, 3.0)) == 20


def test_warm_up_of_a_long_run_is_bounded_too() -> None:
    assert warmup(np.where(np.arange(5000) < 700, 90.0, 3.0), n=5000) <= 256


def test_steps_in_bursts_are_no_warm_up() -> None:
    wait = np.where(np.arange(200) % 3 == 0, 40.0, 0.2)
    assert warmup(3.0, n=200, input_wait=wait) == 0


def test_a_step_that_compiled_is_warm_up_even_if_it_was_quick() -> None:
    flags = [Flags.COMPILED] * 2 + [Flags(0)] * 98
    assert warmup(3.0, flags=flags) == 2


@pytest.mark.parametrize("n", [0, 1, 2])
def test_so_few_steps_have_nothing_to_be_compared_with(n: int) -> None:
    assert warmup(np.full(n, 3.0), n=n) == 0


def test_the_first_of_three_steps_may_be_warm_up() -> None:
    assert warmup(at(3, _0=5000), n=3) == 1


# --- breakdown ---------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(
    st.integers(3, 60),
    st.lists(st.floats(0, 1e4), min_size=6, max_size=6),
    st.sampled_from([SEEN, SEEN | Observed.H2D]),
)
def test_shares_of_step_time_sum_to_a_hundred(n: int, ms: list[float], bits: Observed) -> None:
    wait, forward, backward, optimizer, other, loss = ms
    run = Run().steps(
        n,
        observed=bits,
        input_wait=wait,
        forward=forward,
        backward=backward,
        optimizer=optimizer,
        residual_other=other + 0.01,
        user_0=loss,
    )
    found = breakdown(run, ("loss",))
    assert sum(f.share or 0 for f in found.phases.values()) == pytest.approx(1, abs=1e-9)
    assert sum(f.loop_share or 0 for f in found.phases.values()) == pytest.approx(1, abs=1e-9)


def test_a_phase_that_was_never_observed_is_unknown_throughout() -> None:
    phase = breakdown(Run().steps(30)).phases["h2d"]
    assert phase.coverage == 0
    assert [phase.mean_ns, phase.median_ns, phase.total_ns, phase.share] == [None] * 4


def test_a_mean_is_over_the_steps_that_saw_the_phase() -> None:
    bits = [SEEN, SEEN & ~Observed.OPTIMIZER] * 50
    run = Run(jitter=0).steps(100, observed=bits, optimizer=np.where(np.arange(100) % 2 == 0, 4.0, 0.0))
    phase = breakdown(run).phases["optimizer"]
    assert phase.mean_ns == pytest.approx(4 * MS)
    assert phase.per_step_ns == pytest.approx(2 * MS)
    assert phase.coverage == 0.5


def test_warm_up_is_in_the_total_but_not_in_the_mean() -> None:
    run = Run(jitter=0).steps(100, forward=at(100, _0=5000))
    phase = breakdown(run).phases["forward"]
    assert phase.mean_ns == pytest.approx(3 * MS)
    assert phase.total_ns == (5000 + 99 * 3) * MS


def test_the_device_clock_leaves_out_what_only_the_host_timed() -> None:
    run = Run(jitter=0).steps(
        50,
        observed=SEEN | Observed.DEVICE | Observed.H2D,
        user_0=2,
        dev_h2d=1,
        dev_forward=4,
        dev_backward=8,
        dev_optimizer=2,
        dev_step=16,
    )
    found = break_down(steady(run), aggregate(run).sums, "device", ["loss"])
    assert found is not None
    assert found.step_ns == pytest.approx(16.3 * MS)
    assert found.per_step_ns("residual") == pytest.approx(1 * MS)
    assert found.user_phases == []
    assert sum(f.share or 0 for f in found.phases.values()) == pytest.approx(1)


def test_no_steady_step_has_no_breakdown() -> None:
    assert break_down(steady(Run()), aggregate(Run()).sums, "host", []) is None


def test_steps_of_no_length_have_no_shares() -> None:
    nothing: dict[str, Any] = dict.fromkeys(
        ("input_wait", "forward", "backward", "optimizer", "residual_other"), 0
    )
    found = breakdown(Run().steps(5, between_other=0, own=0, **nothing))
    assert found.share("forward") is None
    assert found.per_step_ns("forward") == 0


def test_a_phase_of_the_users_that_is_called_like_one_of_ours_keeps_apart() -> None:
    assert list(user_phase_names(["forward", "loss"])) == ["user.forward", "loss"]


def test_a_phase_nobody_knows_is_unknown() -> None:
    found = breakdown(Run().steps(5))
    assert found.share("nonsense") is None
    assert found.per_step_ns("nonsense") is None


def test_two_ranks_pool_their_steps() -> None:
    both = pooled([steady(Run().steps(100, forward=3)), steady(Run(seed=2).steps(100, forward=5))])
    assert both.steps == 200
    assert both.mean_ns("forward_ns") == pytest.approx(4 * MS, rel=0.01)
    assert both.quantile_ns("forward_ns", 0.5) == pytest.approx(4 * MS, rel=0.3)


# --- time --------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.floats(0, 50), st.floats(0, 90), st.floats(0, 30)),
        min_size=1,
        max_size=6,
    ),
    st.floats(0, 300),
    st.floats(0, 500),
    st.booleans(),
)
def test_every_nanosecond_is_accounted_for(
    parts: list[tuple[int, float, float, float]], validation: float, shutdown: float, marked: bool
) -> None:
    run = Run()
    for n, step, between, pause in parts:
        run.pause(pause).steps(n, forward=step, between_loader=between, flags=Flags(int(marked)))
    end = run.now_ns + int((validation + shutdown) * MS)
    run.tail(between_validation=validation)
    found = timeline(aggregate(run), START_NS, end)
    assert found is not None
    assert found.total_ns == end - START_NS
    assert found.startup_ns + found.steps_ns + found.between_ns + found.shutdown_ns == found.total_ns
    assert sum(found.by_cause.values()) == found.between_ns
    assert min(found.startup_ns, found.steps_ns, found.shutdown_ns, *found.by_cause.values()) >= 0


def test_start_up_ends_where_the_first_steps_own_work_begins() -> None:
    found = timeline(aggregate(Run().steps(10)), START_NS, 20 * SECOND)
    assert found is not None
    assert found.startup_ns == FIRST_BEGIN_NS - START_NS


def test_a_last_validation_is_time_between_steps_and_the_rest_shut_down() -> None:
    run = Run(jitter=0).steps(10)
    last = run.now_ns
    run.tail(between_validation=400, between_other=100)
    found = timeline(aggregate(run), START_NS, last + 600 * MS)
    assert found is not None
    assert found.by_cause["validation"] == 400 * MS
    assert found.shutdown_ns == 200 * MS


def test_our_own_work_is_time_between_steps_by_name() -> None:
    found = timeline(aggregate(Run(jitter=0).steps(10, own=0.5)), START_NS, 20 * SECOND)
    assert found is not None
    assert found.by_cause["traceml"] == 5 * MS


def test_inferred_steps_before_the_first_marked_one_are_start_up() -> None:
    run = Run(jitter=0).steps(10)
    begin = run.now_ns
    found = timeline(aggregate(run.steps(30, flags=Flags.MARKED)), START_NS, run.now_ns)
    assert found is not None
    assert found.startup_ns == begin - START_NS


def test_a_run_that_goes_on_has_no_shut_down_before_its_last_step() -> None:
    run = Run().steps(10)
    found = timeline(aggregate(run), START_NS, run.now_ns - 5 * MS)
    assert found is not None
    assert found.shutdown_ns == 0


# --- rates -------------------------------------------------------------------------------------


def throughput(run: Run) -> rates.Throughput:
    part = steady(run)
    return rates.throughput(part, aggregate(run).observed, part.warmup)


def test_samples_per_second_counts_what_was_seen_over_the_whole_loop() -> None:
    run = Run(jitter=0).steps(100, between_other=9.888, counts={"samples": 32})
    assert throughput(run).samples == pytest.approx(1600, rel=0.01)


def test_accumulation_changes_updates_but_not_samples_per_second() -> None:
    every_fourth = (np.arange(100) % 4 == 3).astype(int)
    one, four = Run().steps(100), Run().steps(100, counts={"updates": every_fourth})
    first, second = throughput(one), throughput(four)
    assert first.samples == pytest.approx(second.samples, rel=0.01)
    assert first.updates == pytest.approx(4 * (second.updates or 0), rel=0.01)


def test_uncounted_samples_have_no_rate() -> None:
    run = Run().steps(100, observed=SEEN & ~Observed.SAMPLES, counts={"samples": 0, "updates": 0})
    assert throughput(run)[:3] == (None, None, None)


def test_one_uncounted_step_does_not_take_the_rate_away() -> None:
    bits = [SEEN] * 99 + [SEEN & ~Observed.SAMPLES]
    assert throughput(Run().steps(100, observed=bits)).samples is not None


def test_no_step_has_no_rate_and_no_overhead() -> None:
    assert throughput(Run()) == rates.Throughput(None, None, None, None)
    assert rates.overhead(steady(Run())) == rates.Overhead(None, None)


def test_overhead_is_our_own_work_per_step() -> None:
    found = rates.overhead(steady(Run(jitter=0).steps(100, own=0.02)))
    assert found.per_step_ns == pytest.approx(20_000)
    assert found.share == pytest.approx(0.02 / 10.22, rel=0.01)


# --- curves ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 119, 121, 512, 513, 30_000])
def test_the_series_covers_the_whole_run_in_few_points(n: int) -> None:
    found = curves.series(aggregate(Run().steps(n)), None)
    assert len(found.mean_ns) <= curves.MAX_POINTS
    assert sum(found.steps) == n
    assert found.first_step[0] == 0


def test_a_single_slow_step_of_a_long_run_stays_in_the_series() -> None:
    forward = np.full(30_000, 3.0)
    forward[20_000] = 900
    assert max(curves.series(aggregate(Run().steps(30_000, forward=forward)), None).max_ns) > 900 * MS


@pytest.mark.parametrize("n", [30, 700, 30_000])
def test_blocks_leave_the_warm_up_out(n: int) -> None:
    run = Run().steps(n, forward=at(n, _0=5000))
    found = curves.blocks(aggregate(run), 1, breakdown(run))
    assert len(found.phases["step"]) <= curves.MAX_BLOCKS
    assert found.phases["step"].max() < 11 * MS
    assert "h2d" not in found.phases


def test_blocks_hold_every_phase_of_the_breakdown_the_users_included() -> None:
    run = Run().steps(60, user_0=2.0)
    found = curves.blocks(aggregate(run), 1, breakdown(run, ("loss",)))
    assert found.phases["loss"].mean() == pytest.approx(2.0 * MS, rel=0.02)
    parts = [means for name, means in found.phases.items() if name not in {"step", "between_steps"}]
    assert sum(parts) == pytest.approx(found.phases["step"])


def test_blocks_are_on_the_clock_of_the_breakdown() -> None:
    seen = SEEN | Observed.DEVICE | Observed.H2D
    run = Run().steps(60, observed=seen, dev_step=8.0, dev_forward=6.0)
    found = curves.blocks(aggregate(run), 1, break_down(steady(run), aggregate(run).sums, "device", ["loss"]))
    assert found.phases["forward"].mean() == pytest.approx(6.0 * MS, rel=0.02)
    assert found.phases["step"].mean() == pytest.approx(8.3 * MS, rel=0.02)


def test_no_steady_step_has_no_blocks() -> None:
    assert curves.blocks(aggregate(Run()), 0, None).steps_per_block == 0


# --- stalls and drift --------------------------------------------------------------------------


def test_even_steps_have_no_stalls() -> None:
    assert find_stalls(steady(Run().steps(200)).rows) is None


def test_three_stalls_are_too_few_and_half_the_steps_too_many() -> None:
    index = np.arange(200)
    few = steady(Run().steps(200, forward=np.where(index % 60 == 59, 90.0, 3.0))).rows
    many = steady(Run().steps(200, forward=np.where(index % 5 < 2, 90.0, 3.0))).rows
    assert find_stalls(few) is None
    assert find_stalls(many) is None


def test_a_run_of_thirty_steps_is_too_short_for_drift() -> None:
    run = Run().steps(30)
    assert find_drift(aggregate(run), steady(run)) is None


def test_drift_of_a_long_run_is_found_in_its_buckets() -> None:
    forward = np.where(np.arange(30_000) < 21_000, 3.0, 8.0)
    run = Run().steps(30_000, forward=forward)
    found = find_drift(aggregate(run), steady(run))
    assert found is not None
    assert found.from_step == pytest.approx(21_000, abs=200)
    assert found.phase == "forward"
    assert found.after_ns / found.before_ns == pytest.approx(1.5, rel=0.1)


# --- samples -----------------------------------------------------------------------------------


def test_many_samples_are_thinned_evenly_and_keep_the_last() -> None:
    many = [sample(i) for i in range(10_001)]
    thin = hosts.thinned(many)
    assert len(thin) <= 4096
    assert thin[-1] == many[-1]
    assert hosts.thinned([]) == []


def test_moments_are_told_in_steps() -> None:
    run = Run(jitter=0).steps(100)
    times = np.array([0, FIRST_BEGIN_NS, run.now_ns, run.now_ns + SECOND])
    assert hosts.step_at(aggregate(run), times).tolist() == [0, 0, 100, 100]
    assert hosts.step_at(aggregate(Run()), times).tolist() == [0, 0, 0, 0]


def test_processor_use_is_that_of_the_steady_part() -> None:
    taken = [sample(i * SECOND, main_cpu_s=float(min(i, 5))) for i in range(11)]
    assert hosts.cpu(taken, 5 * SECOND) == hosts.CpuFacts(0.0, None, steady=True)
    assert hosts.cpu(taken, None).main_cores == pytest.approx(0.5)
    assert not hosts.cpu(taken, 10 * SECOND).steady


def test_a_worker_that_ends_takes_no_processor_time_back() -> None:
    seconds = [0.0, 1.0, 2.0, 0.5, 1.5]
    taken = [sample(i * SECOND, workers_cpu_s=value) for i, value in enumerate(seconds)]
    assert hosts.cpu(taken, None).workers_cores == pytest.approx(3 / 4)


def test_memory_never_sampled_is_unknown() -> None:
    run = Run().steps(50)
    taken = samples_over(run, 8, main_rss_bytes=None)
    assert hosts.memory(aggregate(run), taken, 0, of_workers=False) is None
    assert hosts.memory(aggregate(run), taken, 0, of_workers=True) is None


def test_the_empty_memory_of_an_ending_process_is_no_measurement() -> None:
    run = Run().steps(50)
    taken = [*samples_over(run, 8), sample(run.now_ns + MS, main_rss_bytes=0, workers=1, workers_pss_bytes=0)]
    found = hosts.memory(aggregate(run), taken, 0, of_workers=False)
    assert found is not None
    assert found.last_bytes == 400 << 20
    assert hosts.memory(aggregate(run), taken, 0, of_workers=True) is None


def test_a_host_that_was_not_sampled_is_unknown() -> None:
    assert hosts.host([]) is None


def test_a_host_whose_counters_could_not_be_read_is_unknown_in_parts() -> None:
    found = hosts.host([sample(0, host_cpu_pct=None, host_used_bytes=None, host_total_bytes=None)])
    assert found == hosts.HostFacts(None, None, None, None, None)
