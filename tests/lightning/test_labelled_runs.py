"""Lightning scripts whose bottleneck is known by construction, as `labelled/` has them for plain loops."""

from __future__ import annotations

from pathlib import Path

import pytest

from labelled import test_labelled as plain

SCRIPTS = sorted(Path(__file__).with_name("labelled").glob("[!_]*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("script", plain.wanted(SCRIPTS), ids=lambda script: script.stem)
def test_a_lightning_script_gets_the_verdict_that_is_true_of_it(script: Path, tmp_path: Path) -> None:
    plain.test_a_script_gets_the_verdict_that_is_true_of_it(script, tmp_path)


def test_no_labelled_lightning_script_knows_of_traceml() -> None:
    assert len(SCRIPTS) >= 12
    assert not [script for script in SCRIPTS if "import traceml" in script.read_text()]
