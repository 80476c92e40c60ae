"""The maths underneath: histograms, robust figures, change points, periods, growth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceml_ai.stats import changepoint, loghist, periodicity, robust
from traceml_ai.stats.growth import late_growth


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=200), st.sampled_from([0.05, 0.5, 0.95, 0.99]))
def test_a_histogram_quantile_is_within_a_bin_of_the_value_at_that_place(values: list[int], q: float) -> None:
    counts = loghist.count(np.array(values))
    exact = float(np.quantile(values, q, method="inverted_cdf"))
    assert loghist.quantile(counts, q) == pytest.approx(exact, rel=0.032)


def test_no_value_has_no_quantile() -> None:
    assert loghist.quantile(np.zeros(loghist.BINS, dtype=np.int64), 0.5) is None


def test_zeros_and_negatives_are_counted_as_zero() -> None:
    assert loghist.quantile(loghist.count(np.array([0, 0, -5])), 0.5) == 0.0


def test_a_value_of_a_year_falls_into_the_last_bin() -> None:
    assert loghist.bins_of(np.array([10**18]))[0] == loghist.BINS - 1


@given(st.lists(st.integers(0, 10**15), min_size=2, max_size=100))
def test_larger_values_never_fall_into_smaller_bins(values: list[int]) -> None:
    ordered = np.sort(np.array(values))
    assert (np.diff(loghist.bins_of(ordered)) >= 0).all()


def test_one_wild_value_does_not_move_the_spread() -> None:
    values = np.array([9.0, 10, 11, 10, 9, 11, 10, 1e9])
    assert robust.sigma(values) == pytest.approx(1.0, abs=0.6)


def test_the_median_of_nothing_is_not_a_number() -> None:
    assert np.isnan(robust.median(np.array([])))


def test_a_quantile_of_nothing_is_unknown() -> None:
    assert robust.quantile(np.array([]), 0.5) is None


def test_there_are_no_more_blocks_than_values() -> None:
    assert robust.block_medians(np.array([1.0, 2.0]), 5).tolist() == [1.0, 2.0]


def test_nothing_has_no_blocks() -> None:
    assert robust.block_medians(np.array([]), 5).tolist() == []


def test_superiority_counts_ties_half() -> None:
    same = np.array([1.0, 2.0, 3.0])
    assert robust.superiority(same, same) == pytest.approx(0.5)
    assert robust.superiority(same, same + 10) == 1.0


def test_the_bootstrap_interval_holds_the_mean_and_is_the_same_every_time() -> None:
    blocks = np.random.default_rng(0).normal(10, 1, 30)
    low, high = robust.bootstrap_mean_interval(blocks)
    assert low < blocks.mean() < high
    assert robust.bootstrap_mean_interval(blocks) == (low, high)


@given(st.integers(20, 180), st.integers(0, 1000))
def test_a_step_in_the_level_is_found_where_it_is(at: int, seed: int) -> None:
    noise = np.random.default_rng(seed).normal(0, 0.1, 200)
    found = changepoint.split(np.where(np.arange(200) < at, 1.0, 2.0) + noise, 20)
    assert found == at


def test_single_stalls_do_not_attract_the_split() -> None:
    values = np.where(np.arange(100) < 60, 1.0, 1.5)
    values[[5, 90]] = 1000.0
    assert changepoint.split(values, 10) == pytest.approx(60, abs=1)


@pytest.mark.parametrize(("n", "margin"), [(9, 5), (10, 0), (0, 1)])
def test_too_few_values_have_no_split(n: int, margin: int) -> None:
    assert changepoint.split(np.arange(n), margin) is None


def test_a_constant_series_is_split_somewhere_within_the_margins() -> None:
    assert changepoint.split(np.ones(10), 3) in range(3, 8)


def test_regular_events_have_a_period() -> None:
    found = periodicity.find_period(np.arange(24, 200, 25))
    assert found is not None
    assert found.length == 25


def test_a_missed_event_does_not_hide_the_period() -> None:
    found = periodicity.find_period(np.array([10, 20, 30, 50, 60, 70]))
    assert found is not None
    assert found.length == 10


@pytest.mark.parametrize(
    "positions", [[1, 2, 3], [3, 9, 10, 40, 44, 45], [5, 5, 5, 5, 5]], ids=["few", "irregular", "at once"]
)
def test_few_irregular_or_coinciding_events_have_no_period(positions: list[int]) -> None:
    assert periodicity.find_period(np.array(positions)) is None


@pytest.mark.parametrize("n", [16, 23, 24, 500])
def test_a_straight_rise_is_sustained_with_its_slope(n: int) -> None:
    x = np.linspace(0, 1000, n)
    found = late_growth(x, 3 * x + 50)
    assert found is not None
    assert found.sustained
    assert found.per_x == pytest.approx(3, rel=0.25)


def test_a_level_is_not_sustained() -> None:
    found = late_growth(np.arange(50), np.full(50, 7.0))
    assert found is not None
    assert not found.sustained
    assert not found.still_rising


def test_growth_of_a_series_that_stands_still_in_x_is_unknown() -> None:
    assert late_growth(np.zeros(10), np.arange(10)) is None


def test_samples_that_all_fall_on_the_last_moment_say_nothing() -> None:
    found = late_growth(np.array([0.0] * 20 + [1.0]), np.arange(21))
    assert found is not None
    assert not found.sustained


def test_five_samples_say_nothing_about_growth() -> None:
    assert late_growth(np.arange(5), np.arange(5)) is None


@given(st.floats(0.3, 20), st.floats(0, 1), st.integers(30, 300))
def test_a_sawtooth_that_fell_back_at_least_twice_is_never_sustained(
    periods: float, phase: float, n: int
) -> None:
    x = np.linspace(0, 2.6 + periods, n) + phase
    found = late_growth(x, x % 1)
    assert found is not None
    assert not found.sustained


def test_fifteen_samples_may_rise_but_nothing_is_called_sustained() -> None:
    found = late_growth(np.arange(15), np.arange(15))
    assert found is not None
    assert found.still_rising
    assert not found.sustained


@pytest.mark.parametrize("seed", range(10))
def test_three_caches_that_fill_at_different_times_are_not_sustained(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = np.linspace(0, 1, 60)
    rises = sum(100 * (x > at) for at in rng.uniform(0, 1, 3))
    found = late_growth(x, 400 + rises + rng.normal(0, 1, 60))
    assert found is not None
    assert not found.sustained


@pytest.mark.parametrize("until", [0.5, 0.7, 0.8])
def test_a_fill_that_ends_before_the_run_is_not_sustained(until: float) -> None:
    x = np.linspace(0, 1, 200)
    found = late_growth(x, np.minimum(x / until, 1))
    assert found is not None
    assert not found.sustained


def test_a_leak_under_teeth_smaller_than_itself_is_sustained() -> None:
    x = np.linspace(0, 1, 200)
    found = late_growth(x, 200 * x + 60 * (20 * x % 1))
    assert found is not None
    assert found.sustained


@pytest.mark.parametrize("n", [20, 60])
@pytest.mark.parametrize("phase", [0.0, 0.3, 0.7])
def test_a_leak_that_an_allocator_makes_a_staircase_is_sustained(n: int, phase: float) -> None:
    x = np.linspace(0, 8, n)
    found = late_growth(x, np.floor(x + phase))
    assert found is not None
    assert found.sustained


@given(st.floats(0.02, 0.4), st.integers(12, 300))
def test_a_curve_that_levels_off_within_the_run_is_never_sustained(tau: float, n: int) -> None:
    x = np.linspace(0, 1, n)
    found = late_growth(x, 1 - np.exp(-x / tau))
    assert found is not None
    assert not found.sustained
