"""The user's objects are after training under `traceml run` what they are in a clean process."""

from __future__ import annotations

import pytest

from integration.harness import SCRIPTS, Pair, both, checks_of, same

STILL_OPEN = {
    "check_warnings_from_inside_a_backward_point_at_the_users_line": (
        "the wrapper around autograd.backward is one more frame for a warning's stacklevel"
    ),
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return both(SCRIPTS / "objects.py", tmp_path_factory.mktemp("objects"))


def test_the_run_was_measured(pair: Pair) -> None:
    assert pair.traced.summary is not None
    assert pair.traced.summary["run"]["steps"] >= 180


@pytest.mark.parametrize("check", checks_of("objects.py", STILL_OPEN))
def test_it_is_as_in_a_clean_process(pair: Pair, check: str) -> None:
    same(pair, check)
