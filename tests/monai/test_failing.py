"""An error of TraceML's own, wherever it is, while MONAI trains: the training makes the same numbers."""

from __future__ import annotations

from pathlib import Path

import scripted
import spoiled

SCRIPT = Path(__file__).with_name("scripts") / "failing.py"


def test_the_training_goes_on_with_the_same_numbers(tmp_path: Path) -> None:
    run = scripted.run(SCRIPT, tmp_path, traced=True)
    assert run.code == 0, run.out
    spoiled.assert_no_harm(run.found, reached=40)
