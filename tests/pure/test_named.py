"""What a framework's trainer knows by name: parts of the residual, handlers between steps."""

from __future__ import annotations

from typing import Any

import pytest

from fakes import MS, Run, samples_over
from traceml_ai.diagnose.named import costliest, handlers, with_parts
from traceml_ai.diagnose.summarize import summarize
from traceml_ai.report.card import render_card
from traceml_ai.schema.summary import Summary


def summary_of(run: Run, **facts: Any) -> Summary:
    return summarize(run.info(), [run.rank(**facts)], samples_over(run, 20))


def parts(steps: int, **ms: float) -> dict[str, Any]:
    spent = {name.replace("_", " "): int(value * MS * steps) for name, value in ms.items()}
    return {"residual_parts_ns": spent, "residual_parts_steps": steps}


def test_known_parts_are_taken_out_of_the_rest_of_the_residual() -> None:
    summary = summary_of(Run().steps(100, residual_other=5), **parts(98, loss=3, decollation=1))
    causes = summary.step_time.residual_by_cause
    assert causes["loss"] == pytest.approx(3)
    assert causes["decollation"] == pytest.approx(1)
    assert causes["other"] == pytest.approx(1, abs=0.1)


def test_parts_never_add_up_to_more_than_the_residual() -> None:
    summary = summary_of(Run().steps(100, residual_other=2), **parts(98, loss=3, decollation=1))
    causes = summary.step_time.residual_by_cause
    assert causes["loss"] == pytest.approx(1.5, rel=0.05)
    assert causes["other"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    "facts",
    [{}, {"residual_parts_ns": {"loss": 5}}, {"residual_parts_ns": {"loss": 0}, "residual_parts_steps": 3}],
)
def test_without_known_parts_the_causes_stay_as_they_are(facts: Any) -> None:
    assert with_parts({"checkpoint": 1.0, "other": 2.0}, facts) == {"checkpoint": 1.0, "other": 2.0}


def test_without_a_residual_there_is_nothing_to_name() -> None:
    assert with_parts({}, {"residual_parts_ns": {"loss": 5}, "residual_parts_steps": 1}) == {}


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ("postprocessing", "Postprocessing runs on every training batch"),
        ("handler Plots", "It runs inside the step"),
    ],
)
def test_the_largest_part_of_a_heavy_residual_is_named_with_its_remedy(part: str, says: str) -> None:
    facts = {"residual_parts_ns": {part: 98 * 9 * MS, "loss": 98 * MS}, "residual_parts_steps": 98}
    found = summary_of(Run().steps(100, residual_other=11), **facts).diagnosis
    assert found.kind == "RESIDUAL_HEAVY"
    assert f"of it {part}" in found.why
    assert found.next.startswith(says)


def test_the_three_costliest_handlers_between_steps_are_named() -> None:
    spent = {"A": 100 * 1 * MS, "Plots": 100 * 20 * MS, "Stats": 100 * 3 * MS, "D": 100 * 2 * MS}
    summary = summary_of(Run().steps(100, between_handlers=26), handlers_ns=spent)
    assert summary.diagnosis.kind == "OUTSIDE_HEAVY"
    assert "callbacks (Plots 20.0 ms, Stats 3.00 ms, D 2.00 ms)" in summary.diagnosis.why
    assert summary.diagnosis.evidence["handlers"] == ["Plots", "Stats", "D"]
    assert list(summary.time.handlers) == ["Plots", "Stats", "D", "A"]
    assert summary.time.handlers["Plots"] == pytest.approx(2.0)
    assert "Handlers between steps: Plots 2.00 s, Stats 0.300 s, D 0.200 s" in render_card(summary, width=100)


def test_of_many_handlers_the_summary_lists_the_costliest() -> None:
    found = costliest(handlers({"handlers_ns": {f"h{i}": i for i in range(50)}}, 10), 10)
    assert list(found) == [f"h{i}" for i in range(49, 41, -1)]


def test_without_steps_no_handler_has_a_cost_per_step() -> None:
    assert handlers({"handlers_ns": {"A": 5}}, 0) == {}
