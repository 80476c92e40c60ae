"""MONAI scripts whose bottleneck is known by construction, as `labelled/` has them for plain loops.

A few of them are part of every run of the tests, all of them with ``TRACEML_EVIDENCE=1``
(`make evidence`): importing MONAI alone takes a few seconds.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from labelled import test_labelled as plain

SCRIPTS = sorted(Path(__file__).with_name("labelled").glob("[!_]*.py"))
ALWAYS = {"input_uncached", "postprocessing_heavy", "validation_every_epoch"}
WANTED = [s for s in SCRIPTS if s.stem in ALWAYS or os.environ.get("TRACEML_EVIDENCE")]


@pytest.mark.slow
@pytest.mark.parametrize("script", WANTED, ids=lambda script: script.stem)
def test_a_monai_script_gets_the_verdict_that_is_true_of_it(script: Path, tmp_path: Path) -> None:
    plain.test_a_script_gets_the_verdict_that_is_true_of_it(script, tmp_path)


def test_no_labelled_monai_script_knows_of_traceml() -> None:
    assert len(SCRIPTS) >= 12
    assert not [script for script in SCRIPTS if "import traceml" in script.read_text()]
