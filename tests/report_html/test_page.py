"""The report as a file: complete in itself, nothing becomes a script, everything is there as text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

from report.summaries import any_summary, empty_summary
from report_html.runs import full, hostile, plain
from traceml_ai.errors import TraceMLError
from traceml_ai.report.html import render_html
from traceml_ai.schema.series import Histogram
from traceml_ai.schema.summary import Summary

LARGEST = 2_000_000
VOID = {"meta", "br", "img", "link", "input", "hr"}


class Element:
    """One element of a page."""

    def __init__(self, tag: str, attributes: dict[str, str | None], parent: Element | None) -> None:
        self.tag, self.attributes, self.parent = tag, attributes, parent
        self.text = ""

    def inside(self, tag: str) -> bool:
        return self.parent is not None and (self.parent.tag == tag or self.parent.inside(tag))


class Page(HTMLParser):
    """A page's elements and their text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs), self._open[-1] if self._open else None)
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().tag == tag, "every element is closed, in order"

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.text += data

    def all(self, tag: str) -> list[Element]:
        return [element for element in self.elements if element.tag == tag]


HTML = render_html(full())
PAGE = Page(HTML)
HOSTILE_HTML = render_html(hostile())
HOSTILE_PAGE = Page(HOSTILE_HTML)


def policy(page: Page) -> dict[str, str]:
    meta = next(e for e in page.all("meta") if e.attributes.get("http-equiv") == "Content-Security-Policy")
    parts = (meta.attributes["content"] or "").split("; ")
    return {name: value for name, _, value in (part.partition(" ") for part in parts)}


def scripts(page: Page) -> list[Element]:
    return [script for script in page.all("script") if "type" not in script.attributes]


def test_it_is_one_file_of_two_megabytes_at_the_most() -> None:
    assert len(HTML.encode()) <= LARGEST


def test_it_names_no_other_file_or_address() -> None:
    addresses = [
        value
        for element in PAGE.elements
        for name, value in element.attributes.items()
        if name in {"src", "href", "srcset", "data", "action", "poster", "background"}
    ]
    assert addresses == ["#content"]
    styles = "".join(style.text for style in PAGE.all("style"))
    assert "url(" not in styles
    assert "@import" not in styles


def test_the_policy_lets_no_request_out_and_runs_known_scripts_only() -> None:
    found = policy(PAGE)
    assert found["default-src"] == "'none'"
    assert found["img-src"] == "data:"
    assert "unsafe" not in found["script-src"]
    hashes = {
        f"'sha256-{base64.b64encode(hashlib.sha256(s.text.encode()).digest()).decode()}'"
        for s in scripts(PAGE)
    }
    assert set(found["script-src"].split()) == hashes


def test_the_policy_stands_before_anything_that_could_ask_for_something() -> None:
    tags = [element.tag for element in PAGE.elements]
    assert tags.index("meta") < tags.index("style")
    assert HTML.index("Content-Security-Policy") < 200


def test_hostile_names_are_text_and_nothing_else() -> None:
    assert not HOSTILE_PAGE.all("img")
    assert len(HOSTILE_PAGE.all("script")) == len(PAGE.all("script"))
    assert all(not name.startswith("on") for e in HOSTILE_PAGE.elements for name in e.attributes)
    assert policy(HOSTILE_PAGE) == policy(PAGE)
    assert "<img src=x onerror=alert(2)>" in HOSTILE_PAGE.all("h1")[0].text


def test_hostile_names_are_no_templates() -> None:
    assert "{{7*7}}" in HOSTILE_PAGE.all("h1")[0].text


def test_nothing_steers_the_direction_of_text() -> None:
    assert "\u202e" not in HOSTILE_HTML
    assert "\u2028" not in HOSTILE_HTML.partition('<script type="application/json"')[0]


def test_the_charts_are_data_that_can_be_read() -> None:
    data = next(s for s in HOSTILE_PAGE.all("script") if s.attributes.get("type") == "application/json")
    items: list[dict[str, Any]] = json.loads(data.text)
    targets = {item["target_id"] for item in items}
    assert targets == {
        e.attributes["id"] for e in HOSTILE_PAGE.all("div") if e.attributes.get("class") == "chart"
    }
    assert "<" not in data.text


@pytest.mark.parametrize("words", ["full", "loss", "rank 2", "python train.py", "0.1.0", "box"])
def test_what_the_summary_says_is_on_the_page(words: str) -> None:
    assert words in PAGE.all("body")[0].text


def test_the_verdict_comes_first_with_why_and_next() -> None:
    summary = full()
    text = PAGE.all("section")[0].text
    assert summary.diagnosis.kind in text
    assert summary.diagnosis.why in text
    assert summary.diagnosis.next in text


def test_what_was_not_measured_reads_not_available() -> None:
    assert "n/a" in Page(render_html(empty_summary())).all("main")[0].text


def test_a_run_that_did_not_end_well_says_how_it_ended() -> None:
    assert "killed" in Page(render_html(_ended(plain()))).all("header")[0].text


def _ended(summary: Summary) -> Summary:
    return replace(summary, run=replace(summary.run, status="killed", exit_code=137))


@pytest.mark.parametrize("where", ["series", "phases", "histogram", "process"])
def test_lists_that_do_not_fit_are_one_line(where: str) -> None:
    summary = plain()
    step, process = summary.step_time, summary.process
    if where == "series":
        step = replace(step, series=replace(step.series, max_ms=step.series.max_ms[1:]))
    elif where == "phases":
        step = replace(step, series=replace(step.series, phases={"forward": [1.0]}))
    elif where == "histogram":
        step = replace(step, histograms={"step": Histogram(edges_ms=[1.0], counts=[1])})
    else:
        process = replace(process, series=replace(process.series, at_s=[1.0]))
    with pytest.raises(TraceMLError, match="is damaged"):
        render_html(replace(summary, step_time=step, process=process))


# --- for those who can't see the pictures ----------------------------------------------------------


def test_every_chart_has_a_name_a_description_and_a_table() -> None:
    figures = PAGE.all("figure")
    assert figures
    for figure in figures:
        inside = [e for e in PAGE.elements if _within(e, figure)]
        (picture,) = [e for e in inside if e.attributes.get("role") == "img"]
        assert len(picture.attributes["aria-label"] or "") > 20
        assert [e for e in inside if e.tag == "table"]
        assert [e for e in inside if e.tag == "figcaption"]


def _within(element: Element, other: Element) -> bool:
    return element.parent is not None and (element.parent is other or _within(element.parent, other))


def test_tables_name_their_rows_and_columns() -> None:
    heads = PAGE.all("th")
    assert heads
    assert {cell.attributes.get("scope") for cell in heads} == {"col", "row"}


def test_what_scrolls_can_be_reached_by_keyboard() -> None:
    scrolling = [e for e in PAGE.all("div") if e.attributes.get("class") == "scroll"]
    assert scrolling
    assert all(e.attributes.get("tabindex") == "0" and e.attributes.get("aria-label") for e in scrolling)


def test_headings_go_down_one_level_at_a_time_and_the_language_is_named() -> None:
    levels = [int(e.tag[1]) for e in PAGE.elements if re.fullmatch(r"h[1-6]", e.tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert PAGE.all("html")[0].attributes["lang"] == "en"


def test_ids_are_unique() -> None:
    ids = [e.attributes["id"] for e in HOSTILE_PAGE.elements if "id" in e.attributes]
    assert len(ids) == len(set(ids))


def test_a_page_without_steps_is_a_page() -> None:
    page = Page(render_html(empty_summary()))
    assert "No step was seen." in page.all("main")[0].text
    assert not page.all("figure")


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(any_summary)
def test_any_summary_makes_a_page_of_closed_elements(summary: Summary) -> None:
    html = render_html(summary)
    assert len(html.encode()) <= LARGEST
    assert len(Page(html).all("script")) == 3
