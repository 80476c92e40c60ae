"""The page of a comparison: both sides drawn, nothing claimed that is not sure, hostile names as text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from compare.sides import given, make_run, side, step_time
from report_html.browser import chromium, needs_browser, visit
from report_html.runs import HOSTILE, hostile, plain
from report_html.test_page import LARGEST, Page, policy
from traceml_ai.cli.main import main
from traceml_ai.compare.comparison import Given, compare
from traceml_ai.report.charts.compare import Sides, draw_comparison
from traceml_ai.report.compare_html import render_comparison
from traceml_ai.schema.compare import Comparison
from traceml_ai.schema.summary import encode


def compared(a: list[Given], b: list[Given]) -> tuple[Comparison, Sides]:
    found = compare(a, b, version="0.1.0")
    return found, Sides(found, [each.summary for each in a], [each.summary for each in b])


SLOWER = compared(side(10.0, 10.01, 9.99, 10.0, 10.0), side(14.0, 14.01, 13.99, 14.0, 14.0, first_seed=9))
SAME = compared(side(10.0, 10.01, 9.99), side(10.0, 10.01, 9.99, first_seed=9))
REAL = compared([given(plain())], [given(plain(forward=6.0), "logs/b")])


def page(found: tuple[Comparison, Sides]) -> str:
    comparison, sides = found
    return render_comparison(comparison, sides.a, sides.b)


def colours(sides: Sides) -> dict[str, str]:
    changes = next(chart for chart in draw_comparison(sides) if chart.key == "changes")
    data = changes.sources["changes"].data
    return dict(zip(data["phase"], data["colour"], strict=True))


def test_the_verdict_and_its_interval_come_first() -> None:
    found, _ = SLOWER
    section = Page(page(SLOWER)).all("section")[0]
    assert found.verdict == "REGRESSION"
    assert found.headline in section.text
    assert "critical" in (section.attributes["class"] or "")


def test_a_change_that_is_sure_has_a_colour_and_one_that_is_not_is_grey() -> None:
    assert colours(SLOWER[1])["step time"] == "#c62828"
    assert colours(SAME[1])["step time"] == "#8a929c"


def test_real_summaries_are_drawn_over_the_run_and_as_histograms() -> None:
    charts = {chart.key: chart for chart in draw_comparison(REAL[1])}
    assert set(charts) == {"changes", "both_phases", "both_timelines", "both_histograms"}
    assert set(charts["both_timelines"].sources) == {"a0", "b0"}
    assert all(chart.table.rows for chart in charts.values())


def test_it_is_one_small_file_with_the_same_policy() -> None:
    html = page(REAL)
    assert len(html.encode()) <= LARGEST
    assert "unsafe" not in policy(Page(html))["script-src"]


def test_runs_that_can_not_be_compared_have_a_page_that_says_why() -> None:
    other = make_run(step_time(), world_size=8)
    found = compared([given(make_run(step_time()))], [given(other, "logs/b")])
    assert found[0].verdict == "NOT_COMPARABLE"
    assert found[0].headline in Page(page(found)).all("main")[0].text


def evil() -> str:
    run = hostile()
    named = replace(run, run=replace(run.run, versions={"traceml": HOSTILE}))
    return page(compared([given(run, HOSTILE)], [given(named, HOSTILE)]))


def test_runs_that_can_not_be_compared_are_drawn_but_not_said_to_have_moved() -> None:
    shown = page(compared([given(plain())], [given(make_run(step_time(), batch_size=999), "logs/b")]))
    assert "Where the time moved" not in shown
    assert "Each run for itself" in shown


def test_hostile_names_are_text_and_nothing_else() -> None:
    found = Page(evil())
    assert not found.all("img")
    assert len(found.all("script")) == 3
    assert "<img src=x onerror=alert(2)>" in found.all("h1")[0].text


@needs_browser
def test_it_draws_logs_no_error_and_asks_for_nothing(browser: str, tmp_path: Path) -> None:
    for name, html in (("real", page(REAL)), ("evil", evil())):
        path = tmp_path / f"{name}.html"
        path.write_text(html, encoding="utf-8")
        seen = visit(browser, path)
        assert (seen.errors, seen.requests) == ([], [])
        assert seen.drawn == 4


@needs_browser
def test_on_a_telephone_a_run_is_named_on_one_line(browser: str, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page(REAL), encoding="utf-8")
    cell = "document.querySelector('#runs ~ * tbody th, #runs ~ table tbody th')"
    ask = [f"{cell}.textContent", f"{cell}.getBoundingClientRect().width >= 90"]
    assert visit(browser, path, ask=ask, width=390).found == [REAL[0].a[0].name, True]


@pytest.fixture(scope="module")
def browser() -> Iterator[str]:
    with chromium() as address:
        yield address


# --- from the command line -----------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, each in zip(paths, (plain(), plain(forward=9.0)), strict=True):
        path.write_bytes(encode(each))
    return [str(path) for path in paths]


def test_the_page_is_there_though_the_gate_failed(files: list[str], tmp_path: Path) -> None:
    words = ["compare", *files, "--html", str(tmp_path / "new" / "page.html"), "--fail-on", "REGRESSION"]
    assert main(words) == 1
    assert (
        "REGRESSION" in Page((tmp_path / "new" / "page.html").read_text(encoding="utf-8")).all("h2")[0].text
    )


def test_a_page_that_can_not_be_written_is_one_line(
    files: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["compare", *files, "--html", str(tmp_path / "file" / "page.html")]) == 2
    assert capfd.readouterr().err.startswith("traceml: can't write")
