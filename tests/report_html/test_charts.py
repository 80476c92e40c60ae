"""The charts: what is drawn of a run, and that they can be brought up to date as a live page does."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from bokeh.document import Document
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

from report.summaries import any_summary, empty_summary
from report_html.runs import HOSTILE, full, plain
from traceml_ai.report.charts import KINDS, TIMELINE, Chart, colour_of, draw, draw_all
from traceml_ai.report.charts.step import phase_word
from traceml_ai.schema.summary import Finding, Scope, Summary

PLAIN = plain()
FULL = full()


def end_of(axis: Any) -> float:
    return float(axis.end)


def chart(key: str, summary: Summary = FULL) -> Chart:
    kind = next(kind for kind in KINDS if kind.key == key)
    found = draw(kind, summary)
    assert found is not None
    return found


def column(drawn: Chart, source: str, name: str) -> list[Any]:
    return list(drawn.sources[source].data[name])


def test_a_run_on_a_device_with_several_ranks_has_something_in_every_chart() -> None:
    assert [drawn.key for drawn in draw_all(FULL)] == [kind.key for kind in KINDS]


def test_a_run_on_the_processor_has_no_device_memory_and_nobody_to_compare_its_rank_with() -> None:
    assert {kind.key for kind in KINDS} - {drawn.key for drawn in draw_all(PLAIN)} == {
        "device_memory",
        "ranks",
    }


def test_nothing_measured_nothing_drawn() -> None:
    assert draw_all(empty_summary()) == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.key)
def test_every_chart_has_a_table_of_the_same_facts(kind: Any) -> None:
    table = kind.table(FULL)
    assert table.rows
    assert {len(row) for row in table.rows} == {len(table.head)}


def test_bars_of_the_step_are_means_over_all_steps_in_the_order_of_a_step() -> None:
    drawn = chart("breakdown")
    names = column(drawn, "bars", "phase")
    assert names[:3] == ["input wait", "forward", "backward"]
    inside = [
        ms for name, ms in zip(names, column(drawn, "bars", "ms"), strict=True) if name != "between steps"
    ]
    assert sum(inside) == pytest.approx(FULL.step_time.step_ms, rel=1e-6)


def test_the_timeline_covers_the_run_from_the_first_step_to_the_last() -> None:
    drawn = chart("timeline")
    assert end_of(drawn.figure.x_range) == 600
    assert column(drawn, "points", "step")[0] < 10


def test_a_finding_is_marked_where_it_happened() -> None:
    finding = Finding(
        kind="SLOWDOWN",
        severity="warning",
        section="step_time",
        why="w",
        next="n",
        scope=Scope(first_step=300),
    )
    marks = chart("timeline", replace(PLAIN, findings=[finding])).sources["marks"].data
    at = list(marks["name"]).index("slowdown")
    assert (marks["x0"][at], marks["x1"][at]) == (300, 400)


def test_a_finding_that_happened_everywhere_is_marked_nowhere() -> None:
    finding = Finding(kind="INPUT_BOUND", severity="warning", section="step_time", why="w", next="n")
    marks = chart("timeline", replace(PLAIN, findings=[finding])).sources["marks"].data
    assert "input bound" not in marks["name"]


def test_one_enormous_step_does_not_flatten_the_others() -> None:
    forward = [3.0] * 400
    forward[200] = 5000.0
    drawn = chart("timeline", plain(forward=forward))
    assert end_of(drawn.figure.y_range) < 2500
    assert "triangle" in column(drawn, "points", "marker")
    assert max(column(drawn, "points", "max")) > 4900


def test_a_histogram_is_in_per_cent_of_the_steps() -> None:
    ms = column(chart("histograms"), "step", "ms")
    pct = column(chart("histograms"), "step", "pct")
    assert 0 < max(pct) <= 100
    assert min(ms) > 0


def test_the_slow_rank_stands_out_from_the_median_one() -> None:
    cells = chart("ranks").sources["cells"].data
    excess = dict(zip(zip(cells["rank"], cells["phase"], strict=True), cells["excess_pct"], strict=True))
    assert excess["rank 2", "forward"] > 5
    assert abs(excess["rank 1", "forward"]) < 1


def test_processes_without_a_rank_that_had_the_same_id_are_rows_of_their_own() -> None:
    rows = [replace(row, rank=None, pid=7) for row in FULL.step_time.ranks]
    drawn = chart("ranks", replace(FULL, step_time=replace(FULL.step_time, ranks=rows)))
    names = list(drawn.figure.y_range.factors)  # type: ignore[attr-defined]
    assert len(set(names)) == len(rows)
    assert set(drawn.sources["cells"].data["rank"]) == set(names)
    assert [row[0] for row in drawn.table.rows] == names[::-1]


def test_a_thousand_ranks_fit_on_a_page() -> None:
    row = FULL.step_time.ranks[0]
    rows = [replace(row, rank=rank) for rank in range(1000)]
    drawn = chart("ranks", replace(FULL, step_time=replace(FULL.step_time, ranks=rows)))
    assert (drawn.figure.height or 0) <= 900


def test_the_parts_of_the_run_add_up_to_the_run() -> None:
    assert sum(column(chart("run_time"), "bars", "seconds")) == pytest.approx(FULL.time.total_s, abs=1e-6)


def test_a_reading_that_was_not_made_is_no_point() -> None:
    series = replace(PLAIN.process.series, main_rss_bytes=[None, *PLAIN.process.series.main_rss_bytes[1:]])
    drawn = chart("memory", replace(PLAIN, process=replace(PLAIN.process, series=series)))
    assert column(drawn, "main", "at") == series.at_s[1:]


def test_a_limit_far_above_the_use_does_not_flatten_it() -> None:
    far = chart("memory", replace(PLAIN, process=replace(PLAIN.process, memory_limit_bytes=1 << 40)))
    near = chart("memory", replace(PLAIN, process=replace(PLAIN.process, memory_limit_bytes=500 << 20)))
    assert end_of(far.figure.y_range) < 1 << 30
    assert end_of(near.figure.y_range) > 500 << 20


# --- as a live page does -------------------------------------------------------------------------


def test_a_newer_summary_goes_into_the_same_figures() -> None:
    drawn = draw_all(PLAIN)
    newer = plain(steps=800)
    assert all(each.update(newer) for each in drawn)
    timeline = next(each for each in drawn if each.key == "timeline")
    assert end_of(timeline.figure.x_range) == 800
    assert column(timeline, "points", "step")[-1] > 700


def test_a_phase_seen_for_the_first_time_takes_another_figure() -> None:
    drawn = chart("phases", PLAIN)
    before = dict(drawn.sources["areas"].data)
    assert not drawn.update(FULL)
    assert dict(drawn.sources["areas"].data) == before


def test_a_figure_goes_into_any_document() -> None:
    document = Document()
    for drawn in draw_all(FULL):
        document.add_root(drawn.figure)
    document.validate()
    assert len(document.roots) == len(KINDS)


# --- names ---------------------------------------------------------------------------------------


def test_a_name_of_the_users_always_has_the_same_colour() -> None:
    assert colour_of("loss") == colour_of("loss")
    assert colour_of("input_wait") != colour_of("forward")


@pytest.mark.parametrize("formula", ["$$x^2$$", "\\[x\\]", "\\(x\\)"])
def test_a_name_is_never_a_formula(formula: str) -> None:
    assert formula[:2] not in phase_word(formula)


def test_a_name_that_steers_text_is_cleaned() -> None:
    assert "\u202e" not in phase_word(HOSTILE)


def test_two_phases_that_read_alike_stay_two() -> None:
    phases = {"input wait": FULL.step_time.phases["forward"], **FULL.step_time.phases}
    summary = replace(FULL, step_time=replace(FULL.step_time, phases=phases))
    assert len(set(column(chart("breakdown", summary), "bars", "phase"))) == len(phases) - 1  # no h2d


# --- any run -------------------------------------------------------------------------------------


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(any_summary)
def test_any_summary_can_be_drawn(summary: Summary) -> None:
    for drawn in draw_all(summary):
        for source in drawn.sources.values():
            assert len({len(values) for values in source.data.values()}) == 1
        assert drawn.update(summary)


def test_values_that_are_none_leave_gaps() -> None:
    series = replace(PLAIN.step_time.series, mean_ms=[None, *PLAIN.step_time.series.mean_ms[1:]])
    found = draw(TIMELINE, replace(PLAIN, step_time=replace(PLAIN.step_time, series=series)))
    assert found is not None
    assert math.isnan(column(found, "points", "mean")[0])
    assert msgspec.json.encode(found.table)
