from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import traceml
import traceml_ai

ROOT = Path(__file__).parent.parent.parent


def test_all_equals_the_sorted_public_names() -> None:
    for name in traceml_ai.__all__:
        getattr(traceml_ai, name)  # the functions are imported when they are asked for
    public = [
        name
        for name, value in vars(traceml_ai).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    ]
    assert traceml_ai.__all__ == sorted(public)


def test_the_short_name_offers_the_same_objects() -> None:
    assert traceml.__all__ == traceml_ai.__all__
    assert all(getattr(traceml, name) is getattr(traceml_ai, name) for name in traceml_ai.__all__)


def test_both_names_tell_the_version() -> None:
    assert traceml.__version__ == traceml_ai.__version__


@pytest.mark.parametrize("name", traceml_ai.__all__)
def test_every_public_name_is_documented_in_the_code_and_on_its_page(name: str) -> None:
    assert inspect.getdoc(getattr(traceml_ai, name))
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    home = getattr(traceml_ai, name).__module__
    assert f"::: {home}.{name}\n" in page or f"::: {home}\n" in page


USE = """
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from typing_extensions import assert_type

import traceml
import traceml_ai
from traceml_ai.api import TracedStep


def train(model: object, batches: list[dict[str, int]]) -> None:
    traceml.init(mode="auto")
    traceml_ai.init("selective", patch_forward=True)
    assert_type(traceml.wrap_dataloader_fetch(batches), Iterable[dict[str, int]])
    for batch in traceml.wrap_dataloader_fetch(batches):
        assert_type(batch, dict[str, int])
        with traceml.trace_step(model) as step, traceml.phase("loss"):
            assert_type(step, TracedStep)
    with traceml.trace_step():
        pass
    assert_type(traceml.final_summary(), dict[str, Any] | None)
    assert_type(traceml.summary(), dict[str, float | str])
    try:
        traceml.init(mode="manual")
    except traceml.UsageError as error:
        assert_type(error.exit_code, int)
"""

MISUSE = """
import traceml

traceml.init(mode=3)
traceml.init("auto", True)
traceml.phase()
traceml.phase(name=7)
traceml.wrap_dataloader_fetch(3)
traceml.trace_steps()
"""


def type_check(folder: Path, source: str) -> tuple[int, str]:
    path = folder / "use_of_the_public_api.py"
    path.write_text(source, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", str(path)]
    command += ["--cache-dir", str(ROOT / ".mypy_cache" / "public-api")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    return done.returncode, done.stdout + done.stderr


def test_the_public_api_types_as_documented(tmp_path: Path) -> None:
    code, said = type_check(tmp_path, USE)
    assert code == 0, said


def test_a_type_checker_finds_each_misuse(tmp_path: Path) -> None:
    _, said = type_check(tmp_path, MISUSE)
    first = MISUSE.splitlines().index("traceml.init(mode=3)") + 1
    wrong = {int(line.split(":")[1]) for line in said.splitlines() if ": error: " in line}
    assert wrong == set(range(first, first + 6)), said
