"""Training makes the same numbers, draws and reads under `traceml run`, bit by bit."""

from __future__ import annotations

import pytest

from integration.harness import SCRIPTS, Pair, both, checks_of, same

STILL_OPEN: dict[str, str] = {}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return both(SCRIPTS / "training.py", tmp_path_factory.mktemp("training"))


def test_the_run_was_measured(pair: Pair) -> None:
    assert pair.traced.summary is not None
    assert pair.traced.summary["run"]["steps"] >= 600


@pytest.mark.parametrize("check", checks_of("training.py", STILL_OPEN))
def test_training_is_the_same_bit_by_bit(pair: Pair, check: str) -> None:
    same(pair, check)
