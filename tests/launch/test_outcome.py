from __future__ import annotations

import signal

import pytest

from traceml_ai.launch.outcome import Outcome


@pytest.mark.parametrize(
    ("returncode", "status", "exit_code"),
    [
        (0, "completed", 0),
        (1, "failed", 1),
        (255, "failed", 255),
        (-signal.SIGINT, "interrupted", 130),
        (130, "interrupted", 130),
        (-signal.SIGTERM, "terminated", 143),
        (143, "terminated", 143),
        (-signal.SIGHUP, "terminated", 129),
        (-signal.SIGKILL, "killed", 137),
        (137, "killed", 137),
        (-signal.SIGSEGV, "killed", 139),
        (-signal.SIGABRT, "killed", 134),
    ],
)
def test_an_end_has_the_status_of_the_vocabulary(returncode: int, status: str, exit_code: int) -> None:
    outcome = Outcome.of(returncode)

    assert (outcome.status, outcome.exit_code) == (status, exit_code)


def test_a_signal_without_a_name_is_a_kill() -> None:
    assert Outcome.of(-40).status == "killed"
