"""Precision of autocorrelated runs, noise between runs, the verdict, and levels over many runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from traceml_ai.compare.history import level_table, levels
from traceml_ai.compare.longrun import precision
from traceml_ai.compare.noise import ASSUMED, Estimate, Floor, PastRun, learn, spread
from traceml_ai.compare.student import quantile
from traceml_ai.compare.verdict import Interval, Wanted, interval, judge, t_value, wanted

Floats = NDArray[np.float64]

# --- Student's distribution ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dof", "value"),
    [(1, 12.7062), (2, 4.30265), (5, 2.57058), (30, 2.04227), (250, 1.96950), (1e9, 1.95996)],
)
def test_quantiles_are_those_of_the_tables(dof: float, value: float) -> None:
    assert quantile(0.975, dof) == pytest.approx(value, rel=1e-4)


def test_the_distribution_is_symmetric() -> None:
    assert quantile(0.01, 4.5) == pytest.approx(-quantile(0.99, 4.5), rel=1e-6)


def test_less_than_one_degree_of_freedom_counts_as_one() -> None:
    assert quantile(0.975, 0.2) == quantile(0.975, 1.0)


def test_correcting_for_many_tests_widens_an_interval() -> None:
    assert t_value(10, tests=7) > t_value(10)


# --- one run's mean --------------------------------------------------------------------------------


def autoregressive(rho: float, runs: int, n: int, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((n, runs))
    for at in range(1, n):
        values[at] = rho * values[at - 1] + math.sqrt(1 - rho**2) * values[at]
    return np.asarray(10 + values.T)


def test_independent_blocks_are_worth_what_they_are() -> None:
    found = [precision(blocks, 10) for blocks in autoregressive(0.0, 300, 40)]
    variances = [each.variance for each in found if each]
    assert 1 / 40 < np.mean(variances) < 1.4 / 40  # the larger of two estimates errs upwards
    assert np.median([each.effective for each in found if each]) > 25


def test_blocks_that_are_alike_are_worth_fewer() -> None:
    found = [precision(blocks, 10) for blocks in autoregressive(0.8, 200, 48)]
    assert np.median([each.effective for each in found if each]) < 10


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
@pytest.mark.parametrize(("n", "steps_per_block"), [(20, 1), (48, 1), (48, 4)])
def test_the_mean_lies_within_the_interval_whatever_the_correlation(
    rho: float, n: int, steps_per_block: int
) -> None:
    runs = autoregressive(rho, 400, n * steps_per_block)
    outside = 0
    for run in runs:
        blocks = run.reshape(n, steps_per_block).mean(axis=1)
        known = precision(blocks, steps_per_block)
        assert known is not None
        outside += abs(blocks.mean() - 10) > t_value(known.dof) * math.sqrt(known.variance)
    assert outside / len(runs) <= 0.06


def test_a_run_of_equal_steps_has_no_error() -> None:
    assert precision([3.0] * 10, 1) == (0.0, 9.0, 10.0)


def test_too_few_blocks_say_nothing() -> None:
    assert precision([1.0, 2, 1, 2, 1], 10) is None


@given(st.lists(st.floats(0.001, 1e6), min_size=6, max_size=48), st.integers(1, 100))
def test_precision_is_always_a_number(blocks: list[float], steps: int) -> None:
    known = precision(blocks, steps)
    assert known is not None
    assert math.isfinite(known.variance)
    assert known.variance >= 0
    assert 0 < known.effective <= len(blocks)
    assert known.dof >= 1


# --- noise between runs ----------------------------------------------------------------------------


def past(*means: float, variance: float | None = 1e-8) -> list[PastRun]:
    return [PastRun(mean, variance) for mean in means]


def noisy(n: int, noise: float, seed: int = 0) -> list[float]:
    return [float(x) for x in 10 * np.exp(noise * np.random.default_rng(seed).standard_normal(n))]


def test_noise_is_learnt_from_earlier_runs() -> None:
    found = learn([past(*noisy(50, 0.01))])
    assert found.relative == pytest.approx(0.01, rel=0.25)
    assert found.runs == 50
    assert found.dof == pytest.approx(49, abs=2)  # a level may be cut off by chance


def test_a_change_between_earlier_runs_is_no_noise() -> None:
    steps = [*noisy(10, 0.005), *(2 * x for x in noisy(10, 0.005, seed=1))]
    assert learn([past(*steps)]).relative < 0.01


def test_runs_with_other_arguments_are_not_mixed() -> None:
    found = learn([past(*noisy(6, 0.005)), past(*(3 * x for x in noisy(6, 0.005, seed=1)))])
    assert found.relative < 0.01
    assert found.runs == 12


@pytest.mark.parametrize("groups", [[], [[]], [past(10, 11, 10, 11)], [past(10), past(10), past(10)]])
def test_too_few_earlier_runs_leave_it_at_the_assumption(groups: list[list[PastRun]]) -> None:
    assert learn(groups) == ASSUMED


def test_what_the_steps_within_the_runs_explain_is_not_counted_twice() -> None:
    means = noisy(40, 0.01)
    assert learn([past(*means, variance=0.8e-4)]).relative < 0.8 * learn([past(*means)]).relative


def test_what_is_left_of_a_variance_is_known_worse() -> None:
    means = noisy(40, 0.01)
    assert learn([past(*means, variance=0.8e-4)]).dof < learn([past(*means)]).dof


def test_a_run_whose_own_precision_is_unknown_is_taken_as_exact() -> None:
    assert learn([past(*noisy(10, 0.01), variance=None)]) == learn([past(*noisy(10, 0.01), variance=0.0)])


def test_equal_earlier_runs_still_leave_a_least_noise() -> None:
    assert learn([past(*[10.0] * 10)]) == Floor(0.002, 9.0, 10)


def exact(*values: float, variance: float = 0.0) -> list[Estimate]:
    return [Estimate(value, variance, 8.0) for value in values]


def test_one_run_a_side_varies_by_the_floor_and_its_own_steps() -> None:
    found = spread(exact(1.0, variance=3e-4), exact(1.0, variance=5e-4), 4e-4, 4e-4, 8.0)
    assert found.variance == pytest.approx(16e-4)
    assert 8 < found.dof < 30


def test_many_runs_a_side_speak_for_themselves() -> None:
    a, b = exact(0.98, 1.0, 1.02), exact(1.08, 1.1, 1.12)
    assert spread(a, b, 1.0, 1.0, 8.0) == pytest.approx((4e-4 * (1 / 3 + 1 / 3), 4.0))


def test_one_run_against_five_knows_the_noise_from_the_five() -> None:
    found = spread(exact(1.0), exact(0.98, 0.99, 1.0, 1.01, 1.02), 1.0, 1.0, 8.0)
    assert found == pytest.approx((2.5e-4 * 1.2, 4.0))


def test_two_runs_a_side_that_agree_by_luck_do_not_make_the_noise_vanish() -> None:
    found = spread(exact(1.0, 1.0), exact(1.0, 1.0), 4e-4, 4e-4, 8.0)
    assert found == pytest.approx((0.8 * 4e-4, 10.0))


def test_two_runs_a_side_that_differ_more_than_expected_are_believed() -> None:
    found = spread(exact(0.9, 1.1), exact(0.9, 1.1), 4e-4, 4e-4, 8.0)
    assert found.variance == pytest.approx(0.02)


def test_no_noise_at_all_is_no_error() -> None:
    assert spread(exact(1.0), exact(1.0), 0.0, 0.0, 8.0) == (0.0, 1.0)


# --- the verdict -----------------------------------------------------------------------------------


def span(low_pct: float, high_pct: float) -> Interval:
    low, high = math.log1p(low_pct / 100), math.log1p(high_pct / 100)
    return Interval((low + high) / 2, (high - low) / 2)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.5, 6, "REGRESSION"),
        (-6, -0.5, "IMPROVEMENT"),
        (-2.9, 2.9, "SAME"),
        (-2.9, 3.1, "UNKNOWN"),
        (-3.1, 2.0, "UNKNOWN"),
        (-20, 30, "UNKNOWN"),
        (0.2, 0.9, "SAME"),
        (-0.9, -0.2, "SAME"),
        (0.2, 1.1, "REGRESSION"),
    ],
)
def test_an_interval_gives_the_verdict(low: float, high: float, verdict: str) -> None:
    assert judge(span(low, high)) == verdict


def test_an_interval_without_bounds_is_still_numbers() -> None:
    found = Interval(0.0, 1e6)
    assert (found.low_pct, judge(found)) == (-100.0, "UNKNOWN")
    assert math.isfinite(found.high_pct)


def test_the_change_is_that_of_the_ratio() -> None:
    found = interval(exact(math.log(20)), exact(math.log(10)), ASSUMED)
    assert found.change_pct == pytest.approx(-50)
    assert judge(found) == "IMPROVEMENT"


def needed(a: list[Estimate], b: list[Estimate], floor: Floor = ASSUMED) -> Wanted:
    return wanted(interval(a, b, floor), a, b, floor)


def test_single_runs_that_are_alike_need_more_runs_not_more_steps() -> None:
    found = needed(exact(1.0), exact(1.0))
    assert found.runs_a_side is not None
    assert 4 <= found.runs_a_side <= 10
    assert found.times_as_long is None


def test_so_many_runs_do_decide() -> None:
    runs = needed(exact(1.0), exact(1.0)).runs_a_side
    assert runs is not None
    assert t_value(2 * runs - 2) * 0.02 * math.sqrt(2 / runs) < math.log(1.03)


def test_short_runs_need_more_steps() -> None:
    quiet = Floor(0.002, 20.0, 21)
    found = needed(exact(1.0, variance=9e-4), exact(1.0, variance=9e-4), quiet)
    assert found.times_as_long is not None
    assert 5 < found.times_as_long < 50


def test_many_short_runs_need_more_steps_too() -> None:
    a, b = exact(0.97, 1.0, 1.03, variance=9e-4), exact(0.97, 1.0, 1.03, variance=9e-4)
    assert needed(a, b).times_as_long is not None


def test_noise_that_runs_or_steps_alone_do_not_beat_takes_both() -> None:
    found = needed(exact(1.0, variance=0.01), exact(1.0, variance=0.01))
    assert found.together
    assert found.runs_a_side is not None
    assert found.times_as_long is not None


def test_noise_without_hope_says_so() -> None:
    assert needed(exact(1.0), exact(1.0), Floor(0.5, 20.0, 21)) == (None, None, False)


# --- levels ----------------------------------------------------------------------------------------


def series(*parts: tuple[int, float], noise: float = 0.01, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    steps = [ms * np.exp(noise * rng.standard_normal(n)) for n, ms in parts]
    return np.asarray(np.log(np.concatenate(steps)), dtype=np.float64)


@pytest.mark.parametrize("n", [4, 6, 12, 60, 400])
def test_runs_that_are_alike_are_one_level(n: int) -> None:
    wrong = sum(levels(series((n, 10.0), seed=seed)) != [0] for seed in range(100))
    assert wrong <= 3


def test_a_jump_begins_a_level() -> None:
    assert levels(series((6, 10.0), (6, 12.0))) == [0, 6]


def test_a_large_jump_between_three_and_three_runs_is_seen() -> None:
    assert levels(series((3, 14.7), (3, 5.8), noise=0.04)) == [0, 3]


def test_a_spell_that_came_and_went_is_a_level_of_its_own() -> None:
    assert levels(series((10, 10.0), (10, 11.0), (10, 10.0))) == [0, 10, 20]


def test_one_odd_run_is_no_level() -> None:
    assert levels(series((10, 10.0), (1, 30.0), (10, 10.0))) == [0]


def test_a_change_below_one_percent_is_not_marked() -> None:
    assert levels(series((200, 10.0), (200, 10.05), noise=0.001)) == [0]


@pytest.mark.parametrize(("n", "starts"), [(0, []), (1, [0]), (3, [0])])
def test_few_runs_are_one_level(n: int, starts: list[int]) -> None:
    assert levels(series((n, 10.0))) == starts


def test_levels_are_told_with_the_change_between_them() -> None:
    first, second = level_table([10.0, 10.0, 10.0, 10.0, 20.0, 20.0, 20.0, 20.0])
    assert (first.first, first.runs, first.change_pct) == (0, 4, None)
    assert second == pytest.approx((4, 4, 20.0, 100.0))


def test_no_runs_have_no_levels() -> None:
    assert level_table([]) == []
