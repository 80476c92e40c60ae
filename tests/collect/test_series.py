from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from traceml_ai.collect.series import SampleSeries
from traceml_ai.schema.samples import HostSample


def sample(t: int, pss: int | None = None) -> HostSample:
    return HostSample(t, 1, 0.0, 1, 0, 0.0, pss, None, None, None)


@given(st.integers(0, 500))
def test_memory_is_bounded_and_the_whole_run_is_covered(count: int) -> None:
    series = SampleSeries(limit=16)
    for t in range(count):
        series.add(sample(t))

    times = [found.t_ns for found in series.samples()]

    assert len(times) <= 16
    assert times == sorted(set(times))
    assert times[:1] == ([0] if count else [])
    assert times[-1:] == ([count - 1] if count else [])


def test_thinning_is_even() -> None:
    series = SampleSeries(limit=8)
    for t in range(100):
        series.add(sample(t))

    times = [found.t_ns for found in series.samples()[:-1]]

    assert {b - a for a, b in itertools.pairwise(times)} == {16}


def test_the_rare_samples_with_the_workers_memory_are_kept() -> None:
    series = SampleSeries(limit=64)
    for t in range(1000):
        series.add(sample(t, pss=t if t % 100 == 37 else None))

    assert [found.workers_pss_bytes for found in series.samples() if found.workers_pss_bytes] == [
        37 + 100 * i for i in range(10)
    ]


def test_few_samples_are_kept_as_they_are() -> None:
    series = SampleSeries()
    for t in range(4095):
        series.add(sample(t))

    assert [found.t_ns for found in series.samples()] == list(range(4095))
