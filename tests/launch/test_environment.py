from __future__ import annotations

import os
from pathlib import Path

import pytest

from traceml_ai.launch.environment import child_environment, with_folder_in_front
from traceml_ai.schema import env


def test_the_users_environment_is_kept() -> None:
    found = child_environment({"A": "1"}, hook_folder=Path("/h"), spool=Path("/s"), run_folder=Path("/r"))

    assert found == {"A": "1", env.SPOOL: "/s", env.RUN_DIR: "/r", env.PYTHONPATH: "/h"}


def test_what_an_outer_run_set_does_not_leak_into_an_inner_one() -> None:
    outer = {env.TRACE_MAX_STEPS: "5", env.RUN_DIR: "/old", env.SPOOL: "/old"}

    found = child_environment(outer, hook_folder=Path("/h"), spool=Path("/s"), run_folder=None)

    assert found == {env.SPOOL: "/s", env.PYTHONPATH: "/h"}


def test_the_limit_on_steps_is_handed_on() -> None:
    found = child_environment(
        {}, hook_folder=Path("/h"), spool=Path("/s"), run_folder=None, trace_max_steps=7
    )

    assert found[env.TRACE_MAX_STEPS] == "7"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, "/h"),
        ("", "/h"),  # an empty entry would be the working directory
        ("/a", f"/h{os.pathsep}/a"),
        (f"/a{os.pathsep}", f"/h{os.pathsep}/a{os.pathsep}"),
        ("/h", "/h"),
        (f"/h{os.pathsep}/a", f"/h{os.pathsep}/a"),
    ],
)
def test_the_hook_goes_in_front_of_the_path_once(before: str | None, after: str) -> None:
    assert with_folder_in_front(before, "/h") == after


@pytest.mark.parametrize(
    ("value", "disabled"), [(None, False), ("", False), ("0", False), ("1", True), ("True", True)]
)
def test_the_switch_is_read_as_people_write_it(value: str | None, *, disabled: bool) -> None:
    assert env.is_disabled(value) is disabled
