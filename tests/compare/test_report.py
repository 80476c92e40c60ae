"""A comparison as text and as Markdown; lists and histories of runs."""

# ruff: noqa: RUF001 - the minus sign is what is printed
from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given as forall
from hypothesis import settings
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len

from compare.sides import PHASES, given, make_run, side, step_time
from report.summaries import STALL, any_summary
from traceml_ai.compare.comparison import compare, empty
from traceml_ai.compare.gate import Gate
from traceml_ai.compare.wording import MINUS
from traceml_ai.report.compare_markdown import render_markdown
from traceml_ai.report.compare_text import render_text
from traceml_ai.report.runs_text import render_history, render_runs
from traceml_ai.schema.compare import Comparison
from traceml_ai.schema.history import History, HistoryLevel, ListedRun, RunList, Series
from traceml_ai.schema.summary import BetweenByCause, ProcessSection, Summary, TimeSection


def example(**run: Any) -> Comparison:
    """The loader was moved into workers: faster, and the model a little slower."""
    a = replace(make_run(), findings=[STALL], process=_memory(400, 0))
    steps = step_time({**PHASES, "input_wait": 1.0, "forward": 5.5}, seed=1)
    time = TimeSection(between_by_cause=BetweenByCause(validation_s=0.5, gc_s=0.001))
    b = replace(
        make_run(steps, **{"name": "new", "num_workers": 2, **run}), process=_memory(400, 100), time=time
    )
    return compare([given(a)], [given(b, "logs/b")], gate=Gate(max_memory_regression_pct=10))


def _memory(main: int, workers: int) -> ProcessSection:
    mib = 1 << 20
    return ProcessSection(
        diagnosis="NORMAL", main_rss_peak_bytes=main * mib, workers=2, workers_pss_peak_bytes=workers * mib
    )


TEXT = render_text(example())


@pytest.mark.parametrize(
    "line",
    [
        r"^TraceML compare · base → new$",
        r"^IMPROVEMENT step time −1\d\.\d % \[−\d+\.\d, −\d+\.\d\] · 16.* → 14.* ms a step, 1.\d+x faster$",
        r"^  Why    Every change that fits the runs is a speed-up, by \d\.\d % at least\.$",
        r"^  Noise  One run a side can't show the noise between runs: 2 % is assumed, for want of",
        r"^Where the time moved \(ms a step\) +A +B +change +97 % interval$",
        r"^\* input wait +5\.\d\d +1\.00 +−4\.\d+ +\[−4\.\d+, −3\.\d+\]$",
        r"^  backward +6\.\d\d +6\.\d\d ",
        r"^Shift: 1\.\d\d ms a step from input wait to forward$",
        r"^Finding: PERIODIC_STALL \(warning\) went: Every 23rd step takes 80 ms longer\.$",
        r"^Throughput: samples/s 1,789 → 1,789 \(0\.0 %\)",
        r"^Peak memory: host 400 MiB → 500 MiB \(\+25\.0 %\), main process 400 MiB → 400 MiB \(0\.0",
        r"^Between steps: validation 1\.98 → 1\.24 ms a step",
        r"^Settings: num_workers 0 → 2$",
        r"^Gate FAILED: --max-memory-regression-pct 10: peak memory \(host\) \+25\.0 % against 10 % allowed$",
    ],
)
def test_the_text_says(line: str) -> None:
    assert re.search(line, TEXT, re.MULTILINE), TEXT


def test_causes_between_steps_that_are_a_trifle_are_left_out() -> None:
    assert "garbage collection" not in TEXT


def test_the_text_is_plain_unless_colour_is_asked_for() -> None:
    assert "\x1b" not in TEXT
    assert "\x1b[32;1mIMPROVEMENT" in render_text(example(), color=True)


def test_the_text_can_be_ascii() -> None:
    text = render_text(example(), ascii_only=True)
    assert text.isascii()
    assert "IMPROVEMENT step time -1" in text
    assert "?" not in text


def test_runs_that_can_not_be_compared_are_told_why_and_nothing_else() -> None:
    text = render_text(example(threads=16))
    assert "\nNOT_COMPARABLE: thread count differs: 2 and 16\n" in text
    assert "Where the time moved" not in text
    assert "Settings: num_workers 0 → 2" in text


def test_an_unknown_says_what_it_takes() -> None:
    text = render_text(compare(side(1.0), side(1.0, first_seed=1)))
    assert re.search(
        r"^         It would take about \d+ runs a side \(now 1 and 1\) to decide\.$", text, re.MULTILINE
    )


def test_a_regression_says_how_many_times_slower() -> None:
    assert re.search(r"ms a step, 1\.50x slower$", render_text(compare(side(1.0), side(1.5))), re.MULTILINE)


def test_many_runs_of_a_side_are_counted_not_named() -> None:
    text = render_text(compare(side(1.0, 1.0, 1.0), side(1.0, 1.0, first_seed=3)))
    assert text.startswith("TraceML compare · r0 + 2 more → r3 + r4\n")


def test_a_step_that_can_not_be_judged_has_no_table() -> None:
    text = render_text(compare([given(make_run(step_time(blocks=3)))], side(1.0)))
    assert "UNKNOWN: too few steady steps" in text
    assert "Where the time moved" not in text


def test_long_lists_are_cut_and_counted() -> None:
    command = ["python", "train.py", *(f"--flag-{i}={i}" for i in range(20))]
    assert ", and 9 more" in render_text(example(command=command)).replace("\n  ", " ")


@settings(max_examples=40, deadline=None)
@forall(any_summary, any_summary, st.booleans())
def test_whatever_the_runs_no_line_is_wider_than_the_page_and_none_steers_the_terminal(
    a: Summary, b: Summary, ascii_only: bool
) -> None:
    sides = [given(a)], [given(b, "b")]
    if empty(sides[0]) or empty(sides[1]):
        return
    found = compare(*sides, gate=Gate(5, 5, ["UNKNOWN"]))
    text = render_text(found, width=80, ascii_only=ascii_only)
    assert max(map(cell_len, text.split("\n"))) <= 80
    assert all(char.isprintable() or char == "\n" for char in text)
    assert text.isascii() or not ascii_only
    assert render_markdown(found)


# --- Markdown --------------------------------------------------------------------------------------


def test_the_markdown_says_on_one_line_what_was_compared() -> None:
    line = render_markdown(example()).splitlines()[2]
    assert re.fullmatch(r"`A` \S+ → `B` \S+: [\d.]+ → [\d.]+ ms a step, [\d.]+x faster", line)


def test_the_markdown_has_verdict_table_gates_and_details() -> None:
    text = render_markdown(example())
    assert re.match(r"### 🟢 IMPROVEMENT: step time −1\d\.\d % \\\[−", text)
    assert "| ms a step | A | B | change | 97 % interval |\n| --- | ---: |" in text
    assert "| **input wait** |" in text
    assert "| backward |" in text
    assert "- ❌ --max-memory-regression-pct 10: peak memory (host) +25.0 % against 10 % allowed" in text
    assert "<details><summary>What else differs</summary>\n\n- setting: num\\_workers 0 → 2" in text


def test_a_comparison_without_anything_else_has_no_details() -> None:
    bare = replace(make_run(), time=TimeSection())
    assert "<details>" not in render_markdown(compare([given(bare)], [given(bare, "logs/b")]))


def test_runs_that_can_not_be_compared_say_why_in_markdown() -> None:
    text = render_markdown(example(threads=16))
    assert text.startswith("### 🟡 NOT\\_COMPARABLE: thread count differs: 2 and 16\n")


HOSTILE = "<script>x</script> [a](http://evil) ![i](//e) @team #1 `c` |x| *b* www.evil.com\n# head \u202e"


def test_hostile_names_and_arguments_add_nothing_to_the_markdown() -> None:
    text = render_markdown(example(name=HOSTILE, command=["python", "train.py", HOSTILE]))
    assert "<script" not in text.replace("\\<script", "")
    assert not re.search(r"(?<!\\)\]\(", text)
    assert not re.search(r"@\w|#\d|://|www\.", text)
    assert "\u202e" not in text
    assert not re.search(r"^# head", text, re.MULTILINE)


# --- lists of runs -----------------------------------------------------------------------------------


def listed(name: str, ms: float | None, change: float | None = None, **more: Any) -> ListedRun:
    fields = {"script": "train.py", "status": "completed", "diagnosis": "INPUT_BOUND", **more}
    return ListedRun(
        name=name, started_at="2030-01-02T03:04:05+00:00", step_ms=ms, change_pct=change, **fields
    )


def test_runs_are_a_table_of_columns() -> None:
    text = render_runs(RunList(logs_dir="logs", runs=[listed("a", 10.0), listed("b", 12.0, 20.0)]))
    head, first, second = text.splitlines()
    assert head.split() == ["when", "run", "script", "verdict", "step", "ms", "change", "status"]
    assert re.fullmatch(
        r"2030-01-0\d \d\d:\d4  a    train.py  INPUT_BOUND     10.0           completed", first
    )
    assert second.endswith("b    train.py  INPUT_BOUND     12.0  +20.0 %  completed")


def test_runs_that_could_not_be_read_are_named_below_the_table() -> None:
    bad = [listed(f"bad{i}", None, problem="not a TraceML summary") for i in range(7)]
    lines = render_runs(RunList(logs_dir="logs", runs=[listed("a", None), *bad])).splitlines()
    assert "n/a" in lines[1]
    assert lines[3] == "bad0: not a TraceML summary"
    assert lines[-1] == "and 2 more"


def test_nothing_to_show_is_said() -> None:
    assert render_runs(RunList(logs_dir="logs", runs=[])) == "no run to show\n"


def test_a_time_that_is_none_is_shown_as_it_is() -> None:
    odd = [replace(listed("a", 1.0), started_at=None), replace(listed("b", 1.0), started_at="yesterday")]
    lines = render_runs(RunList(logs_dir="logs", runs=odd)).splitlines()
    assert lines[1].startswith("n/a ")
    assert lines[2].startswith("yesterday ")


def history(*ms: float, levels: list[HistoryLevel]) -> History:
    runs = [listed(f"r{i}", value) for i, value in enumerate(ms)]
    series = Series(
        script="train.py", host="node", settings={"batch size": "8", "device": None}, runs=runs, levels=levels
    )
    return History(logs_dir="logs", script="train", series=[series])


def level(first: int, runs: int, ms: float, change: float | None = None) -> HistoryLevel:
    return HistoryLevel(since=None, first_run=f"r{first}", runs=runs, step_ms=ms, change_pct=change)


def test_a_history_marks_its_change_points() -> None:
    found = history(10, 10, 20, 20, levels=[level(0, 2, 10.0), level(2, 2, 20.0, 100.0)])
    lines = render_history(found).splitlines()
    assert lines[0] == "train.py on node: batch size 8"
    assert lines[4].endswith("◆ +100.0 % from here on")
    assert lines[-1] == "1 change point: 10.0 ms (2 runs) → 20.0 ms (2 runs)"
    assert lines[2].count("█") * 2 == lines[4].count("█") == 24


def test_a_history_without_a_change_says_so_and_can_be_ascii() -> None:
    text = render_history(history(10, 11, levels=[level(0, 2, 10.5)]), ascii_only=True)
    assert text.splitlines()[-1] == "No change point in 2 runs."
    assert text.isascii()
    assert MINUS not in text


def test_hostile_names_do_not_steer_the_terminal() -> None:
    text = render_runs(
        RunList(
            logs_dir="l",
            runs=[listed("\x1b[2J\u202e", 1.0, script="\x07"), listed("x", None, problem="\x1b[0m")],
        )
    )
    assert all(char.isprintable() or char == "\n" for char in text)
