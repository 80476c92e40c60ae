"""Real `SupervisedTrainer` runs: what is recorded of them, and that they train the same numbers.

A case (in `scripts/cases.py`) checks its own record in the process that trains, and returns what it
trained; here that is compared with a process that knows nothing of TraceML.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cases_of_scripts import cases_of, check
from scripted import Run, run_both

SCRIPTS = Path(__file__).with_name("scripts")
Runs = tuple[Run, Run]
REFUSALS = (
    "MONAI's GanTrainer is not attached",
    "MONAI's AdversarialTrainer is not attached",
    "MONAI's SupervisedEvaluator is no trainer and is not attached",
    "SupervisedTrainer with iteration_update= is not attached",
    "Own overrides _iteration and is not attached",
    "Replaces replaces one of prepare_batch, network, optimizer, inferer",
    "a second TraceMLHandler on one SupervisedTrainer is not attached",
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return run_both(SCRIPTS / "cases.py", tmp_path_factory.mktemp("cases"))


@pytest.mark.parametrize("case", [*cases_of(SCRIPTS / "cases.py"), *cases_of(SCRIPTS / "by_hand.py")])
def test_case(case: str, runs: Runs) -> None:
    check(case, *runs)


def test_the_run_is_described(runs: Runs) -> None:
    run = runs[0].summary["run"]
    assert run["status"] == "completed"
    assert run["framework"] == "monai"
    assert run["mode"] == "marked"
    assert {"monai", "torch"} <= set(run["versions"])
    assert "Net" in run["model"]
    assert runs[0].summary["warnings"]  # the aborted steps
    # No accelerator, no device memory: not a zero.
    assert runs[0].summary["step_memory"]["diagnosis"] == "NO_DATA"


def test_the_summary_names_the_residual_and_the_handlers(runs: Runs) -> None:
    causes = runs[0].summary["step_time"]["residual_by_cause"]
    assert {"prepare_batch", "network.train", "zero_grad", "loss", "decollation", "postprocessing"} <= set(
        causes
    )
    phases = runs[0].summary["step_time"]["phases"]
    assert sum(causes.values()) == pytest.approx(phases["residual"]["mean_ms"], rel=0.01)
    handlers = list(runs[0].summary["time"]["handlers"].values())
    assert handlers == sorted(handlers, reverse=True)
    assert "Handlers between steps: " in runs[0].out


@pytest.mark.parametrize("says", REFUSALS)
def test_each_refusal_is_one_warning(says: str, runs: Runs) -> None:
    traced, plain = runs
    assert traced.out.count(f"traceml: {says}") == 1
    assert sum(says in warning for warning in traced.summary["warnings"]) == 1
    assert says not in plain.out
