from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings

from report.summaries import any_summary, empty_summary, make_summary
from traceml_ai.report.flat import flatten
from traceml_ai.schema.summary import Summary


def plain(summary: Summary) -> dict[str, Any]:
    built: dict[str, Any] = msgspec.to_builtins(summary)
    return built


def test_the_main_numbers_have_one_name_each() -> None:
    flat = flatten(plain(make_summary()))
    assert flat["traceml/step_ms"] == 29.4
    assert flat["traceml/samples_per_sec"] == 1789.2
    assert flat["traceml/main_rss_bytes"] == 412_000_000
    assert flat["traceml/overhead_us_per_step"] == 9.8


def test_the_primary_finding_and_each_sections_kind_are_there() -> None:
    flat = flatten(plain(make_summary()))
    assert flat["traceml/diagnosis"] == "INPUT_BOUND"
    assert flat["traceml/step_memory_diagnosis"] == "NO_DATA"


def test_what_was_not_measured_is_absent() -> None:
    assert "traceml/step_ms" not in flatten(plain(empty_summary()))


@given(any_summary)
@settings(max_examples=30, deadline=None)
def test_every_value_can_be_logged(summary: Summary) -> None:
    assert {type(value) for value in flatten(plain(summary)).values()} <= {int, float, str}
