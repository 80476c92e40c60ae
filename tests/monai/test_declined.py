"""A plain `init()` beside MONAI's: the run is declined, and trains as ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from cases_of_scripts import check
from scripted import run_both

SCRIPT = Path(__file__).with_name("scripts") / "plain_init.py"
CASE = "after_a_plain_init_nothing_is_published"


@pytest.mark.parametrize("order", ["before", "after"])
def test_a_plain_init_declines_the_run_on_stderr(order: str, tmp_path: Path) -> None:
    traced, plain = run_both(SCRIPT, tmp_path, order)
    check(CASE, traced, plain)
    assert traced.code == 0
    assert traced.out.count("traceml: traceml.init() was called in this process") == 1
    assert traced.summary["run"]["steps"] == 0
    assert traced.summary["step_time"]["diagnosis"] == "NO_DATA"
    # Without a collector the training goes on, and it is said once.
    assert plain.code == 0
    assert plain.out.count("no collector for this process") == 1
