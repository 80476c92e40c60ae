"""An error of TraceML's own, wherever it is: the training makes the same numbers, and it is said once."""

from __future__ import annotations

from typing import Any

import pytest

from integration.harness import SCRIPTS, begin, finish

# They are needed to end in order as well, which is then said in a second line.
_TWO_LINES = {"Session._refresh_facts", "StepLogWriter.put", "Facts.write"}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("failing")
    run = finish(begin(SCRIPTS / "failing.py", folder, traced=True), folder)
    assert run.code == 0, run.stderr
    return run.found


def test_every_part_was_made_to_fail(found: dict[str, Any]) -> None:
    """Most parts are reached by the training that the script does."""
    said = [name for name, result in found.items() if result["warnings"]]

    assert len(found) > 80
    assert len(said) > 45
    assert found["nothing"]["warnings"] == []
    assert found["nothing"]["stderr"] == ""


def test_the_training_goes_on_with_the_same_numbers(found: dict[str, Any]) -> None:
    expected = found["nothing"]["out"]

    assert isinstance(expected, list)
    different = {name for name, result in found.items() if result["out"] != expected}
    assert different == set()


def test_an_error_is_said_once(found: dict[str, Any]) -> None:
    for name, result in found.items():
        lines = result["stderr"].splitlines()
        assert len(lines) <= 1 + (name in _TWO_LINES), (name, lines)
        assert all(line.startswith("traceml: ") for line in lines), (name, lines)


def test_an_error_that_stops_measuring_is_in_the_warnings(found: dict[str, Any]) -> None:
    for name, result in found.items():
        if "measuring stopped" in result["stderr"]:
            assert "injected" in result["warnings"][-1]["message"], name
