"""An error of TraceML's own, wherever it is: the training makes the same numbers, and it is said once."""

from __future__ import annotations

from pathlib import Path

import spoiled
from integration.harness import SCRIPTS, begin, finish


def test_the_training_goes_on_with_the_same_numbers(tmp_path: Path) -> None:
    run = finish(begin(SCRIPTS / "failing.py", tmp_path, traced=True), tmp_path)
    assert run.code == 0, run.stderr
    assert len(run.found) > 160
    spoiled.assert_no_harm(run.found, reached=80)
