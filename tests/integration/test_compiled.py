"""Compiling is the same under `traceml run`: graphs, breaks, recompilations and losses."""

from __future__ import annotations

import pytest

from integration.harness import SCRIPTS, Pair, both, checks_of, same

STILL_OPEN = {
    "check_compiled_whole_step": "the same graphs and breaks, but three more frames are compiled around them",
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return both(SCRIPTS / "compiled.py", tmp_path_factory.mktemp("compiled"))


def test_the_run_was_measured(pair: Pair) -> None:
    assert pair.traced.summary is not None
    assert pair.traced.summary["run"]["steps"] >= 400


@pytest.mark.parametrize("check", checks_of("compiled.py", STILL_OPEN))
def test_compilers_see_the_same_program(pair: Pair, check: str) -> None:
    same(pair, check)
