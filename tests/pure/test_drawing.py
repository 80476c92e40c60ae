"""What the summary keeps for drawing: phases over the run, histograms, processor and memory use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import MS, SECOND, SEEN, START_NS, Run, samples_over
from traceml_ai.analyze import curves
from traceml_ai.analyze.host_curves import MAX_POINTS, host_curves
from traceml_ai.analyze.steady import steady_part
from traceml_ai.diagnose.summarize import summarize
from traceml_ai.schema.samples import HostSample
from traceml_ai.schema.step import Observed
from traceml_ai.schema.summary import Summary, encode
from traceml_ai.stats import loghist


def summary(run: Run, samples: list[HostSample] | None = None, **facts: Any) -> Summary:
    given = samples_over(run, 12) if samples is None else samples
    return summarize(run.info(), [run.rank(**facts)], given)


# --- phases over the run -------------------------------------------------------------------------


def test_the_phases_of_each_point_add_up_to_its_step_time() -> None:
    series = summary(Run().steps(400)).step_time.series
    inside = [values for name, values in series.phases.items() if name != "between_steps"]
    total = np.sum(np.array(inside, dtype=float), axis=0)
    assert total == pytest.approx(np.array(series.mean_ms, dtype=float), abs=0.001)


def test_a_phase_that_was_not_observed_has_no_line() -> None:
    assert "h2d" not in summary(Run().steps(60)).step_time.series.phases


def test_a_phase_that_the_user_named_has_a_line() -> None:
    found = summary(Run().steps(60, user_0=2.0), user_phases=["loss"]).step_time.series
    assert found.phases["loss"][-1] == pytest.approx(2.0, rel=0.1)


def test_a_run_without_steps_has_no_points() -> None:
    assert summary(Run()).step_time.series.phases == {}


# --- histograms ----------------------------------------------------------------------------------


def test_a_histogram_counts_every_steady_step_once() -> None:
    step_time = summary(Run().steps(5000)).step_time
    assert sum(step_time.histograms["step"].counts) == step_time.steps


def test_two_kinds_of_steps_are_two_hills() -> None:
    forward = np.where(np.arange(1000) % 4 == 0, 12.0, 3.0)
    found = summary(Run().steps(1000, forward=forward)).step_time.histograms["forward"]
    filled = np.flatnonzero(np.array(found.counts) > 20)
    assert np.diff(filled).max() > 2


def test_a_histogram_is_short_however_wide_the_times() -> None:
    forward = np.logspace(-3, 6, 1000)
    found = summary(Run().steps(1000, forward=forward)).step_time.histograms["forward"]
    assert len(found.counts) <= curves.MAX_BINS
    assert len(found.edges_ms) == len(found.counts) + 1


def test_no_steady_step_no_histogram() -> None:
    run = Run()
    assert curves.histograms(steady_part(run.rank().aggregate), None) == {}


def test_the_histograms_are_on_the_clock_of_the_breakdown() -> None:
    device: dict[str, Any]
    device = {"dev_forward": 30.0, "dev_backward": 1.0, "dev_optimizer": 1.0, "dev_step": 33.0}
    run = Run().steps(200, observed=SEEN | Observed.DEVICE, **device)
    found = summary(run).step_time
    assert found.clock == "device"
    assert found.histograms["forward"].edges_ms[0] > 20


@given(st.lists(st.integers(0, 1 << 50), min_size=1, max_size=200), st.integers(2, 60))
def test_a_coarse_histogram_loses_no_value(values: list[int], most: int) -> None:
    edges, counts = loghist.coarse(loghist.count(np.array(values, dtype=np.int64)), most)
    assert sum(counts) == len(values)
    assert 0 < len(counts) <= most
    assert edges == sorted(edges)
    assert counts[0] > 0
    assert counts[-1] > 0


def test_nothing_counted_is_no_histogram() -> None:
    assert loghist.coarse(np.zeros(loghist.BINS, dtype=np.int64), 10) == ([], [])


# --- processor and memory use --------------------------------------------------------------------


def reading(second: float, **values: Any) -> HostSample:
    fields: dict[str, Any] = {
        "t_ns": START_NS + round(second * SECOND), "pid": 1, "main_cpu_s": second, "main_rss_bytes": 100,
        "workers": 0, "workers_cpu_s": None, "workers_pss_bytes": None, "host_cpu_pct": 50.0,
        "host_used_bytes": 1000, "host_total_bytes": 4000,
    }  # fmt: skip
    return HostSample(**(fields | values))


def test_processors_are_those_kept_busy_since_the_point_before() -> None:
    found = host_curves([reading(1, main_cpu_s=1.0), reading(3, main_cpu_s=4.0)], START_NS)
    assert found.main_cores == [None, 1.5]
    assert found.at_ns == [SECOND, 3 * SECOND]


def test_a_worker_that_ended_is_no_negative_use() -> None:
    found = host_curves([reading(1, workers_cpu_s=9.0), reading(2, workers_cpu_s=1.0)], START_NS)
    assert found.workers_cores == [None, 0.0]


def test_two_readings_of_one_moment_say_nothing_about_use() -> None:
    assert host_curves([reading(1), reading(1)], START_NS).main_cores == [None, None]


def test_memory_of_a_process_that_is_gone_is_missing() -> None:
    assert host_curves([reading(1, main_rss_bytes=0)], START_NS).main_rss_bytes == [None]


def test_readings_that_could_not_be_made_are_missing() -> None:
    found = host_curves([reading(1, main_cpu_s=None, host_cpu_pct=None), reading(2)], START_NS)
    assert found.main_cores == [None, None]
    assert found.host_cpu_pct == [None, 50.0]


def test_a_point_shows_the_newest_memory_of_the_workers_among_its_readings() -> None:
    readings = [
        reading(i, workers=2, workers_pss_bytes=i if i % 4 == 1 else None) for i in range(4 * MAX_POINTS)
    ]
    found = host_curves(readings, START_NS)
    assert len(found.at_ns) == MAX_POINTS
    assert found.workers_pss_bytes == list(range(1, 4 * MAX_POINTS, 4))


def test_no_readings_no_points() -> None:
    assert host_curves([], START_NS).at_ns == []


# --- the size of it ------------------------------------------------------------------------------


def test_the_summary_stays_small_with_everything_that_is_drawn() -> None:
    run = Run().steps(20_000, user_0=1.0, user_1=1.0, user_2=1.0)
    found = summary(run, samples_over(run, 4000), user_phases=["a", "b", "c"])
    assert len(encode(found)) < 64 * 1024
    assert found.step_time.series.phases["a"][0] == pytest.approx(1.0, rel=0.1)
    assert found.process.series.at_s[-1] <= (run.info().end_ns - START_NS) / SECOND + 1
    assert found.step_time.series.mean_ms[0] == pytest.approx(10.1 + 3, rel=0.2)
    assert MS == 10**6
