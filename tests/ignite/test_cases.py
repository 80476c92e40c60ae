"""Real Ignite engines: what is recorded of them, and that they train the same numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from cases_of_scripts import cases_of, check
from scripted import Run, run_both

SCRIPT = Path(__file__).with_name("scripts") / "cases.py"
Runs = tuple[Run, Run]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return run_both(SCRIPT, tmp_path_factory.mktemp("cases"))


@pytest.mark.parametrize("case", cases_of(SCRIPT))
def test_case(case: str, runs: Runs) -> None:
    check(case, *runs)


def test_the_run_is_described(runs: Runs) -> None:
    run = runs[0].summary["run"]
    assert run["framework"] == "ignite"
    assert "ignite" in run["versions"]
    assert "Sequential" in run["model"]
    assert run["batch_size"] == 4


def test_each_refusal_is_one_warning(runs: Runs) -> None:
    traced, plain = runs
    for says in ("a second TraceMLHandler on one engine", "an Ignite evaluator is not attached"):
        assert traced.out.count(f"traceml: {says}") == 1
        assert says not in plain.out
