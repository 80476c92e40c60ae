"""An error of TraceML's own, wherever it is, while Lightning trains: the training makes the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import spoiled


def test_the_training_goes_on_with_the_same_numbers(run_script: Callable[..., Any], tmp_path: Path) -> None:
    run = run_script("failing.py", tmp_path, "lightning")
    assert run.code == 0, run.out
    spoiled.assert_no_harm(run.found, reached=40)
