"""Real `Trainer` runs in both namespaces: what is recorded of them, and that they train the same numbers.

A case (in `scripts/cases.py`) checks its own record in the process that trains, and returns what it
trained; here that is compared with a process that knows nothing of TraceML.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("scripts") / "cases.py"
NAMESPACES = ("lightning", "pytorch_lightning")


def _cases() -> list[str]:
    tree = ast.parse(SCRIPT.read_text())
    return [n.name for n in tree.body if isinstance(n, ast.FunctionDef) and n.decorator_list]


# Of each namespace: the run under TraceML, and the one without.
Runs = dict[str, tuple[Any, Any]]


@pytest.fixture(scope="module")
def runs(run_both: Callable[..., tuple[Any, Any]], tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder = tmp_path_factory.mktemp("cases")
    return {name: run_both("cases.py", folder / name, name) for name in NAMESPACES}


@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize("case", _cases())
def test_case(case: str, namespace: str, runs: Runs) -> None:
    traced, plain = runs[namespace]
    assert "raised" not in traced.found[case], traced.found[case]["raised"]
    assert "raised" not in plain.found[case], plain.found[case]["raised"]
    assert traced.found[case] == plain.found[case]


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_the_run_is_described(namespace: str, runs: Runs) -> None:
    run = runs[namespace][0].summary["run"]
    assert run["status"] == "completed"
    assert run["framework"] == "lightning"
    assert run["mode"] == "marked"
    assert run["strategy"] == "SingleDeviceStrategy"
    assert "lightning" in run["versions"]
    assert "Small" in run["model"]
    # No accelerator, no device memory: not a zero.
    memory = runs[namespace][0].summary["step_memory"]
    assert memory["diagnosis"] == "NO_DATA"
