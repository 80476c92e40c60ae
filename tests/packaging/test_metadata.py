from __future__ import annotations

import re
from importlib.metadata import entry_points, metadata, requires

import pytest
from packaging.requirements import Requirement

REQUIREMENTS = [Requirement(line) for line in requires("traceml-ai") or []]
CORE = [r for r in REQUIREMENTS if r.marker is None or r.marker.evaluate({"extra": ""})]


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=str)
def test_no_requirement_has_an_upper_bound(requirement: Requirement) -> None:
    assert {specifier.operator for specifier in requirement.specifier} <= {">", ">=", "!="}


def test_the_core_needs_five_libraries() -> None:
    assert sorted(r.name for r in CORE) == ["msgspec", "numpy", "psutil", "rich", "textual"]


def test_torch_is_never_required_by_name() -> None:
    assert "torch" not in {r.name for r in REQUIREMENTS}


def test_python_has_a_lower_bound_only() -> None:
    assert metadata("traceml-ai")["Requires-Python"] == ">=3.10"


def test_the_command_is_the_one_that_is_documented() -> None:
    found = {script.name: script.value for script in entry_points(group="console_scripts")}
    assert found["traceml"] == "traceml_ai.cli.main:main"


def test_the_licence_is_named_in_the_metadata() -> None:
    assert re.search("Apache-2.0", metadata("traceml-ai")["License-Expression"])
