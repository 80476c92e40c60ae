"""`final_summary.json`: what is in it, how it is written, and what else is refused with one line."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import SEEN, Header, Run, run_info, samples_over
from traceml_ai.diagnose.summarize import RankInput, summarize
from traceml_ai.errors import TraceMLError
from traceml_ai.schema import summary as schema
from traceml_ai.schema.step import Flags, Observed
from traceml_ai.schema.summary import Summary, decode, encode


def summary(run: Run, **facts: Any) -> Summary:
    return summarize(run.info(), [run.rank(**facts)], samples_over(run, 12))


GOOD = summary(Run().steps(60))

KEYS = [
    "schema_version", "traceml_version", "run", "diagnosis", "findings", "step_time", "step_memory", "time",
    "throughput", "system", "process", "overhead", "warnings",
]  # fmt: skip


def test_the_keys_are_those_of_the_vocabulary_in_its_order() -> None:
    assert list(json.loads(encode(GOOD))) == KEYS


def test_what_was_written_is_read_back() -> None:
    assert decode(encode(GOOD)) == GOOD


def test_numbers_of_a_series_share_a_line() -> None:
    assert '"first_step": [0, 1, 2' in encode(GOOD).decode()


def test_a_string_that_looks_like_a_series_stays_as_it_is() -> None:
    odd = msgspec.structs.replace(GOOD, warnings=["[\n 1,\n 2\n]"])
    assert decode(encode(odd)).warnings == ["[\n 1,\n 2\n]"]


def test_numbers_that_are_none_become_null() -> None:
    odd = msgspec.structs.replace(
        GOOD, throughput=schema.ThroughputSection(samples_per_sec=float("nan"), steps_per_sec=float("inf"))
    )
    read = json.loads(encode(odd), parse_constant=pytest.fail)
    assert read["throughput"] == {
        "samples_per_sec": None, "tokens_per_sec": None, "updates_per_sec": None, "steps_per_sec": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "cut off"),
        (encode(GOOD)[:700], "cut off"),
        (b"epoch 3: loss 0.1", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[1, 2]", "not a TraceML summary"),
        (b'{"loss": 0.1}', "not a TraceML summary"),
        (b'{"traceml_version": "0.5.0", "schema_version": "1.4"}', "not a TraceML summary"),
        (b'{"traceml_version": "9", "schema_version": 99}', "newer TraceML (schema 99"),
        (b'{"traceml_version": "1", "schema_version": 1}', "is damaged"),
    ],
)
def test_anything_else_is_refused_with_one_line_that_names_the_file(data: bytes, said: str) -> None:
    with pytest.raises(TraceMLError) as raised:
        decode(data, source="logs/a/final_summary.json")
    assert said in str(raised.value)
    assert str(raised.value).startswith("logs/a/final_summary.json")
    assert "\n" not in str(raised.value)


def test_keys_of_a_later_version_of_the_same_schema_are_passed_over() -> None:
    assert decode(encode(GOOD).replace(b"{\n", b'{\n  "added_later": 1,\n', 1)) == GOOD


def test_the_published_json_schema_names_every_section() -> None:
    found = schema.json_schema()
    assert set(KEYS) == set(found["$defs"]["Summary"]["properties"])


durations = st.floats(0, 1e5) | st.sampled_from([0.0, 1e-6, 1e7])


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 80),
    st.lists(durations, min_size=9, max_size=9),
    st.integers(0, 1023),
    st.integers(0, 63),
    st.integers(0, 8),
)
def test_any_run_gives_a_strict_summary_that_is_read_back(
    n: int, ms: list[float], observed: int, flags: int, samples: int
) -> None:
    names = ("input_wait", "h2d", "forward", "backward", "optimizer", "residual_other", "between_other",
             "between_loader", "own")  # fmt: skip
    run = Run().steps(
        n,
        observed=Observed(observed),
        flags=Flags(flags & ~int(Flags.TAIL)),
        counts={"samples": 0, "updates": 0},
        **dict(zip(names, ms, strict=True)),
    )
    found = summarize(run.info(), [run.rank(header=Header())], samples_over(run, samples))
    data = encode(found)
    json.loads(data, parse_constant=pytest.fail)
    assert decode(data) == found
    assert found.diagnosis in found.findings
    assert found.step_time.steps + found.step_time.warmup_steps == found.run.steps == n


def test_time_adds_up_to_the_life_of_the_process() -> None:
    found = summary(Run().steps(40, between_validation=3).tail(between_checkpoint=70)).time
    parts = [found.startup_s, found.steps_s, found.between_steps_s, found.shutdown_s]
    assert sum(part or 0 for part in parts) == pytest.approx(found.total_s, abs=1e-8)
    causes = msgspec.structs.asdict(found.between_by_cause).values()
    assert sum(causes) == pytest.approx(found.between_steps_s, abs=1e-8)


def test_facts_that_are_not_known_are_null() -> None:
    found = summarize(
        msgspec.structs.replace(run_info(), machine=None), [Run().steps(30).rank(header=None)], []
    )
    assert found.process.usable_cpus is None
    assert found.process.memory_limit_bytes is None
    assert found.run.batch_size is None
    assert found.run.nodes is None
    assert found.overhead.attach_ms is None


def test_what_the_process_says_about_itself_is_in_the_run() -> None:
    loaders = [{"batch_size": 16, "num_workers": 3, "persistent_workers": True}]
    found = summary(
        Run().steps(30, counts={"microbatches": 2}),
        loaders=loaders,
        framework="pytorch",
        torch_version="2.13.0",
    ).run
    assert (found.batch_size, found.num_workers, found.persistent_workers) == (16, 3, True)
    assert found.microbatches == 60
    assert found.versions == {"traceml": "0.1.0", "torch": "2.13.0"}


def test_a_run_without_a_log_header_counts_what_its_facts_count() -> None:
    run = Run().steps(30)
    rank = RankInput(run.rank().aggregate, {"pid": 4242, "aborted_steps": 2}, None)
    found = summarize(run.info(), [rank], samples_over(run, 8))
    assert found.run.aborted_steps == 2
    assert found.step_time.ranks[0].pid == 4242
    assert found.process.samples == 8


def test_samples_of_another_process_are_left_out() -> None:
    run = Run().steps(30)
    other = samples_over(run, 5, pid=1)
    found = summarize(run.info(), [run.rank()], [*other, *samples_over(run, 3)])
    assert found.process.samples == 3


@pytest.fixture(scope="module")
def long_run() -> Run:
    n = 200_000
    return Run().steps(
        n, observed=SEEN | Observed.H2D | Observed.MEMORY, user_0=1.0, forward=np.linspace(3, 9, n)
    )


def test_the_summary_of_a_long_run_is_small(long_run: Run) -> None:
    found = summary(long_run, user_phases=["loss"])
    assert len(encode(found)) < 64_000
    assert found.run.steps == 200_000
    assert len(found.step_time.series.mean_ms) <= 120


def test_a_live_summary_takes_some_milliseconds(long_run: Run) -> None:
    rank, info = long_run.rank(), long_run.info()
    begin = time.process_time()
    summarize(info, [rank], [])
    assert time.process_time() - begin < 0.5  # about 10 ms; the limit only catches another order of growth
