"""One rank's whole run in bounded memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fakes import FIRST_BEGIN_NS, MS, SEEN, Run
from traceml_ai.analyze.aggregate import HEAD_RECORDS, RECENT_RECORDS, SLOWEST_RECORDS, RankAggregate
from traceml_ai.analyze.buckets import MAX_BUCKETS
from traceml_ai.analyze.columns import EXT, column
from traceml_ai.analyze.steady import steady_part
from traceml_ai.schema.step import Flags, Observed


def aggregate(records: NDArray[Any], cuts: list[int] | None = None) -> RankAggregate:
    result = RankAggregate()
    for part in np.split(records, sorted(cuts or [])):
        result.add(part)
    return result


def mixed(n: int, seed: int) -> NDArray[Any]:
    rng = np.random.default_rng(seed)
    flags = [Flags(int(bits)) for bits in rng.choice([0, 0, 4, 2], n)]
    observed = [SEEN if seen else SEEN & ~Observed.FORWARD for seen in rng.random(n) < 0.9]
    return Run(seed=seed).steps(n, flags=flags, observed=observed, forward=rng.gamma(2, 3, n)).records()


def same(first: RankAggregate, second: RankAggregate) -> bool:
    return (
        first.count == second.count
        and first.observed == second.observed
        and first.flags == second.flags
        and first.excluded == second.excluded
        and np.array_equal(first.sums, second.sums)
        and np.array_equal(first.epoch_start_sums, second.epoch_start_sums)
        and np.array_equal(first.tail_sums, second.tail_sums)
        and first.histograms.keys() == second.histograms.keys()
        and all(np.array_equal(first.histograms[name], second.histograms[name]) for name in first.histograms)
        and np.array_equal(first.head(), second.head())
        and np.array_equal(first.recent(), second.recent())
        and np.array_equal(first.slowest(), second.slowest())
        and all(
            np.array_equal(np.asarray(a), np.asarray(b))
            for a, b in zip(first.buckets(), second.buckets(), strict=True)
        )
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 99), st.lists(st.integers(0, 1500), max_size=12))
def test_how_records_were_cut_into_blocks_does_not_matter(seed: int, cuts: list[int]) -> None:
    records = mixed(1500, seed)
    assert same(aggregate(records), aggregate(records, cuts))


def test_a_long_run_cut_into_uneven_blocks_is_the_same_run() -> None:
    records = mixed(40_000, 3)
    assert same(aggregate(records), aggregate(records, [1, 700, 701, 20_000, 20_001, 39_999]))


def test_marks_that_come_late_are_the_same_however_the_blocks_were_cut() -> None:
    run = Run().steps(30).steps(50, flags=Flags.MARKED).steps(3).steps(20, flags=Flags.MARKED)
    records = run.records()
    assert same(aggregate(records), aggregate(records, [10, 30, 31, 80, 82]))


def test_memory_is_bounded_whatever_the_number_of_steps() -> None:
    found = aggregate(mixed(60_000, 1))
    assert len(found.head()) == HEAD_RECORDS
    assert len(found.recent()) == RECENT_RECORDS
    assert len(found.slowest()) == SLOWEST_RECORDS
    assert len(found.buckets().counts) <= MAX_BUCKETS


def test_the_buckets_cover_the_whole_run() -> None:
    records = mixed(60_000, 2)
    found = aggregate(records)
    view = found.buckets()
    assert view.counts.sum() == 60_000
    assert np.array_equal(view.sums[:, EXT["forward_ns"]].sum(), found.sums[EXT["forward_ns"]])
    assert view.maxima[:, EXT["forward_ns"]].max() == records[:, EXT["forward_ns"]].max()
    assert view.minima[0, EXT["begin_ns"]] == FIRST_BEGIN_NS


def test_a_buckets_median_is_within_its_resolution() -> None:
    found = aggregate(Run().steps(5000).records())
    assert found.buckets().median_step_ns() == pytest.approx(10.1 * MS, rel=0.06)


def test_the_slowest_steps_are_kept_with_their_index() -> None:
    forward = np.full(20_000, 3.0)
    forward[[17, 9_000, 15_000]] = [300, 200, 100]
    found = aggregate(Run().steps(20_000, forward=forward).records(), [5_000, 10_000])
    assert column(found.slowest(), "step")[:3].tolist() == [17, 9_000, 15_000]


def test_the_most_recent_steps_are_kept_in_order() -> None:
    found = aggregate(Run().steps(20_000).records(), [123, 8_000, 16_500])
    assert column(found.recent(), "step").tolist() == list(range(20_000 - RECENT_RECORDS, 20_000))


def test_a_tail_is_no_step() -> None:
    found = aggregate(Run().steps(30).tail(between_validation=500, between_other=70).records())
    assert found.count == 30
    assert found.tails == 1
    assert found.tail_sums[EXT["between_validation_ns"]] == 500 * MS


def test_marked_steps_win_over_inferred_ones() -> None:
    run = Run().steps(5, forward=900).steps(40, flags=Flags.MARKED).steps(2, forward=900)
    found = aggregate(run.records())
    assert found.marked
    assert found.count == 40
    assert found.excluded == 7


def test_time_of_inferred_steps_between_marked_ones_is_time_between() -> None:
    run = Run(jitter=0).steps(10, flags=Flags.MARKED).steps(1, forward=90).steps(10, flags=Flags.MARKED)
    found = aggregate(run.records())
    assert found.sums[EXT["gap_ns"]] == pytest.approx((90 + 7.212) * MS, rel=1e-3)


def test_time_that_no_record_holds_is_time_between() -> None:
    found = aggregate(Run(jitter=0).steps(10).pause(33).steps(10).records(), [10])
    assert found.sums[EXT["gap_ns"]] == 33 * MS


def test_an_empty_block_changes_nothing() -> None:
    found = aggregate(Run().records())
    assert found.count == 0
    assert found.first_begin_ns is None
    assert len(found.recent()) == 0


def test_a_phase_that_is_never_observed_has_no_histogram() -> None:
    found = aggregate(Run().steps(10).records())
    assert "h2d_ns" not in found.histograms


@pytest.mark.parametrize("n", [300, 30_000])
def test_quantiles_of_long_runs_agree_with_those_of_all_records(n: int) -> None:
    records = Run().steps(n, forward=np.random.default_rng(0).gamma(4, 2, n)).records()
    steady = steady_part(aggregate(records))
    for q in (0.5, 0.95, 0.99):
        exact = np.quantile(records[steady.warmup :, EXT["forward_ns"]], q)
        assert steady.quantile_ns("forward_ns", q) == pytest.approx(exact, rel=0.02)
    assert steady.quantile_ns("h2d_ns", 0.5) is None
