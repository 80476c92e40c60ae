"""Loops that people reported as measured wrongly elsewhere: what is said of each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from integration.harness import begin, finish
from traceml_ai.collect.notes import Notes
from traceml_ai.collect.tail import Tail
from traceml_ai.diagnose.summarize import summarize
from traceml_ai.schema.run import RunInfo
from traceml_ai.schema.summary import Summary

SCRIPT = Path(__file__).parent / "scripts" / "loops.py"


class Said(NamedTuple):
    """How a loop ended, and the summary of it alone."""

    code: int
    summary: Summary


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Said]:
    folder = tmp_path_factory.mktemp("symptoms")
    run = finish(begin(SCRIPT, folder, traced=True), folder)
    assert run.code == 0, run.stderr
    found = {name: Said(code, _summary(folder / "spool", pid)) for name, (pid, code) in run.found.items()}
    assert [name for name, each in found.items() if each.code] == [], run.stderr
    return found


def _summary(spool: Path, pid: int) -> Summary:
    tail = Tail(spool, Notes(), only=pid)
    tail.finish()
    inputs = tail.inputs()
    closes = [each.aggregate.last_close_ns or 0 for each in inputs]
    run = RunInfo(
        name="one", status="completed", exit_code=0, started_at="2026-01-01T00:00:00Z", start_ns=0,
        end_ns=max(closes, default=1), command=[], traceml_version="0",
    )  # fmt: skip
    return summarize(run, inputs, [])


@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_an_accumulated_batch_is_no_more_samples_a_second(said: Mapping[str, Said], k: int) -> None:
    one, many = (said[f"accumulate_{each}"].summary for each in (1, k))

    assert (many.run.updates, many.run.microbatches) == (32 // k, 32)
    # A busy machine slows either; a factor of k would be 2 at least.
    assert many.throughput.samples_per_sec == pytest.approx(one.throughput.samples_per_sec, rel=0.4)


def test_a_step_that_is_tried_again_leaves_the_others_as_they_are(said: Mapping[str, Said]) -> None:
    found = said["retry_with_half_a_batch"].summary

    assert found.run.updates == 50
    assert found.step_time.median_step_ms is not None
    assert found.step_time.median_step_ms < 40  # 2 ms; with a failure over 60


def test_a_marked_step_that_fails_is_counted_apart(said: Mapping[str, Said]) -> None:
    found = said["retry_in_marked_steps"].summary

    assert (found.run.steps, found.run.aborted_steps, found.run.updates) == (50, 10, 50)
    assert found.step_time.p95_step_ms is not None
    assert found.step_time.p95_step_ms < 40


def test_setting_the_clock_back_changes_nothing(said: Mapping[str, Said]) -> None:
    found = said["wall_clock_set_back"].summary

    assert found.run.steps == 60
    assert 1.9 < (found.step_time.phases["input_wait"].mean_ms or 0) < 20
    assert min(found.time.startup_s or 0, found.time.steps_s or 0, found.time.between_steps_s or 0) >= 0


@pytest.mark.parametrize("name", ["a_copy_is_named", "another_kind_of_model_is_named"])
def test_the_model_that_trains_is_found_whichever_was_named(said: Mapping[str, Said], name: str) -> None:
    found = said[name].summary

    assert found.run.steps == 60
    assert (found.step_time.phases["forward"].coverage or 0) > 0.9


def test_where_nothing_trains_it_is_said(said: Mapping[str, Said]) -> None:
    found = said["nothing_is_trained"].summary

    assert found.diagnosis.kind == "NO_DATA"
    assert found.run.steps == 0


def test_evaluating_leaves_the_training_figures_as_they_are(said: Mapping[str, Said]) -> None:
    without, evaluating = (
        said[name].summary for name in ("without_evaluation", "evaluating_after_every_second_step")
    )

    assert evaluating.step_time.dataloader_pct == pytest.approx(without.step_time.dataloader_pct, abs=15)
    # 20 evaluations of 40 ms; the last follows the last step.
    assert 0.7 < (evaluating.time.between_by_cause.validation_s or 0) < 3
    assert evaluating.diagnosis.kind == "OUTSIDE_HEAVY"


def test_setting_up_again_counts_every_batch_once(said: Mapping[str, Said]) -> None:
    found = said["set_up_again_and_again"].summary

    assert (found.run.steps, found.run.updates, found.run.microbatches) == (60, 60, 60)


def test_public_objects_are_pickled(said: Mapping[str, Said]) -> None:
    assert said["public_objects_are_pickled"].code == 0


def test_no_collective_is_ours(said: Mapping[str, Said]) -> None:
    assert said["one_rank_stops_early"].code == 0
