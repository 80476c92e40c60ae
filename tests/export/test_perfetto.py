"""The trace: what the trace event format asks for, ranks as tracks, phases as slices inside their step."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fakes import START_NS, Header, Run, samples_over
from traceml_ai.diagnose.summarize import summarize
from traceml_ai.errors import TraceMLError
from traceml_ai.export.perfetto import trace_of, write_perfetto
from traceml_ai.export.steps import KeptSteps, kept_steps, rank_steps
from traceml_ai.schema.step import Flags
from traceml_ai.schema.summary import Summary

Event = dict[str, Any]
NANOSECOND = 1e-3  # of a microsecond, the format's unit


def recorded(*runs: Run, **facts: Any) -> tuple[KeptSteps, Summary]:
    ranks = [run.rank(header=Header(pid=100 + at, rank=at), **facts) for at, run in enumerate(runs)]
    summary = summarize(runs[0].info(), ranks, samples_over(runs[0], 10))
    return kept_steps(rank_steps(ranks), START_NS), summary


def trace(*runs: Run, **facts: Any) -> list[Event]:
    return list(trace_of(*recorded(*runs, **facts)))


def slices(events: list[Event], category: str | None = None, rank: int = 0) -> list[Event]:
    return [e for e in events if e["ph"] == "X" and e["pid"] == rank and category in {None, e.get("cat")}]


def end(event: Event) -> float:
    return float(event["ts"] + event["dur"])


def check_nesting(events: list[Event]) -> None:
    """Slices of a track are in order, and each is inside of or after the one before, as viewers need them."""
    open_until: list[float] = []
    for event in events:
        while open_until and event["ts"] >= open_until[-1] - NANOSECOND:
            open_until.pop()
        assert not open_until or end(event) <= open_until[-1] + NANOSECOND, event
        open_until.append(end(event))
    starts = [event["ts"] for event in events]
    assert all(later >= earlier - NANOSECOND for earlier, later in pairwise(starts))


def test_events_have_what_the_format_asks_for() -> None:
    required = {
        "X": {"name", "cat", "ph", "ts", "dur", "pid", "tid"},
        "M": {"name", "ph", "pid", "args"},
        "C": {"name", "ph", "ts", "pid", "args"},
    }
    events = trace(Run().steps(20))
    assert {event["ph"] for event in events} == set(required)
    for event in events:
        assert required[event["ph"]] <= set(event)
        assert event.get("dur", 0) >= 0
        assert event.get("ts", 0) >= 0


def test_a_rank_is_a_track_with_its_name() -> None:
    events = trace(Run().steps(5), Run().steps(5))
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {0: "rank 0", 1: "rank 1"}
    assert len(slices(events, "step", rank=1)) == 5


def test_a_step_is_a_slice_with_its_phases_inside() -> None:
    events = trace(Run().steps(3, user_0=1.0), user_phases=["loss"])
    step = slices(events, "step")[1]
    inside = [e for e in slices(events, "phase") if step["ts"] <= e["ts"] < end(step)]
    assert [e["name"] for e in inside] == [
        "input wait",
        "forward",
        "loss",
        "backward",
        "optimizer",
        "residual other",
    ]
    assert sum(e["dur"] for e in inside) == pytest.approx(step["dur"])


def test_the_time_between_steps_lies_between_them_by_cause() -> None:
    events = trace(Run().steps(3, between_validation=5.0))
    first, second = slices(events, "step")[:2]
    (pause,) = [
        e
        for e in slices(events)
        if e["name"] == "between validation" and first["ts"] < e["ts"] < second["ts"]
    ]
    assert pause["dur"] == pytest.approx(5000, rel=0.1)
    assert end(first) <= pause["ts"] + NANOSECOND


def test_slices_nest() -> None:
    check_nesting(slices(trace(Run().steps(200, between_checkpoint=2.0, residual_validation=1.0))))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                name: st.floats(0, 1e4)
                for name in ("input_wait", "h2d", "forward", "user_0", "between_gc", "own")
            }
        ),
        min_size=1,
        max_size=20,
    )
)
def test_slices_nest_whatever_the_times(times: list[dict[str, Any]]) -> None:
    run = Run()
    for step in times:
        run.steps(1, **step)
    check_nesting(slices(trace(run, user_phases=["loss"])))


def test_a_step_says_what_it_trained_and_what_was_special_about_it() -> None:
    step = slices(trace(Run().steps(2, flags=[Flags.FIRST_OF_EPOCH, Flags(0)])), "step")[0]
    assert step["args"] == {
        "microbatches": 1, "updates": 1, "samples": 8, "first of an epoch": True, "update skipped": False,
    }  # fmt: skip


def test_memory_is_a_counter() -> None:
    counters = [e for e in trace(Run().steps(50)) if e["ph"] == "C"]
    assert {e["name"] for e in counters} >= {"main process memory"}
    assert all(np.isfinite(list(e["args"].values())).all() for e in counters)


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_the_file_is_strict_json_compressed_when_it_is_called_so(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_perfetto(*recorded(Run().steps(5)), path)
    data = gzip.decompress(path.read_bytes()) if name.endswith(".gz") else path.read_bytes()
    document = json.loads(data, parse_constant=pytest.fail)
    assert document["displayTimeUnit"] == "ms"
    assert document["traceEvents"]


@pytest.mark.parametrize(
    ("at_s", "said"), [([0.0], "differ in length"), ([-1e308] * 10, "beyond all numbers")]
)
def test_a_series_that_was_damaged_is_one_line(tmp_path: Path, at_s: list[float], said: str) -> None:
    steps, summary = recorded(Run().steps(5))
    series = replace(summary.process.series, at_s=at_s[: len(summary.process.series.at_s)])
    damaged = replace(summary, process=replace(summary.process, series=series))
    with pytest.raises(TraceMLError, match=said):
        write_perfetto(steps, damaged, tmp_path / "trace.json")


def test_a_place_that_can_not_be_written_to_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(TraceMLError, match="can't write"):
        write_perfetto(*recorded(Run().steps(2)), tmp_path / "no folder" / "trace.json")
