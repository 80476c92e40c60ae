"""The documented workflow on real runs: a baseline, the loader changed, compared, gated."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "slow_storage.py"
PAGE = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")
CI = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
LIGHTNING = (ROOT / "docs" / "lightning.md").read_text(encoding="utf-8")
PATIENCE_S = 120


class Done(NamedTuple):
    """A command that ended."""

    code: int
    out: str


def traceml(folder: Path, *words: str) -> Done:
    command = [sys.executable, "-m", "traceml_ai", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Done(done.returncode, done.stdout)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train with the loader as it was and with workers; reading is slow enough to stand out anywhere."""
    folder = tmp_path_factory.mktemp("workflow")
    short = ["--epochs", "3", "--read-ms", "5"]
    for name, words in (("base", []), ("new", ["--workers", "4"])):
        run = ["run", "--run-name", name, str(SCRIPT), "--args", *short, *words]
        assert traceml(folder, *run).code == 0
    return folder


def evidence(folder: Path, name: str) -> dict[str, Any]:
    found = json.loads((folder / f"{name}.json").read_bytes())
    assert isinstance(found, dict)
    return found


def test_moving_the_reading_into_workers_is_an_improvement_and_it_says_where(runs: Path) -> None:
    done = traceml(runs, "compare", "base", "new", "--output", "evidence/faster")
    found = evidence(runs, "evidence/faster")
    assert done.code == 0
    assert found["verdict"] == "IMPROVEMENT"
    assert found["step_time"]["high_pct"] < 0
    changes = {phase["phase"]: phase for phase in found["phases"]}
    assert min(changes, key=lambda name: changes[name]["change_ms"]) == "input_wait"
    assert changes["input_wait"]["change_ms"] < -10
    assert {"about": "argument", "name": "--workers", "a": None, "b": "4"} in found["differences"]
    assert {"about": "setting", "name": "num_workers", "a": "0", "b": "4"} in found["differences"]


def test_taking_it_back_fails_the_gate_and_leaves_the_evidence(runs: Path) -> None:
    gate = ["--max-step-time-regression-pct", "5", "--fail-on", "REGRESSION"]
    done = traceml(runs, "compare", "new", "base", *gate, "--output", "evidence/slower")
    found = evidence(runs, "evidence/slower")
    assert done.code == 1
    assert (found["verdict"], found["passed"]) == ("REGRESSION", False)
    assert (runs / "evidence/slower.txt").read_text() == done.out
    assert [gate["passed"] for gate in found["gates"]] == [False, False]


def test_what_did_not_get_slower_passes_the_gate(runs: Path) -> None:
    gate = ["--max-step-time-regression-pct", "0", "--fail-on", "REGRESSION,UNKNOWN"]
    done = traceml(runs, "compare", "base", "new", *gate)
    assert done.code == 0
    assert done.out.count("Gate passed: ") == 2


def test_another_batch_size_is_not_comparable(runs: Path) -> None:
    short = ["--epochs", "1", "--batch-size", "16"]
    assert traceml(runs, "run", "--run-name", "wide", str(SCRIPT), "--args", *short).code == 0
    done = traceml(runs, "compare", "base", "wide", "--fail-on", "REGRESSION")
    assert (done.code, done.out.splitlines()[1]) == (3, "NOT_COMPARABLE: batch size differs: 8 and 16")


def test_the_runs_are_listed(runs: Path) -> None:
    rows = {line.split()[2]: line for line in traceml(runs, "runs").out.splitlines()[1:]}
    assert "INPUT_BOUND" in rows["base"]
    assert "completed" in rows["new"]


# --- the pages ---------------------------------------------------------------------------------------


def blocks(page: str, start: str) -> list[str]:
    return [block for block in page.split("```") if block.startswith(start)]


KINDS = re.compile(
    r"^(?:TraceML compare|IMPROVEMENT|  Why|  Noise|Where the time moved|  input wait|  between steps|"
    r"Throughput|Peak memory|Arguments|Settings)",
    re.MULTILINE,
)


def layout(text: str) -> list[str]:
    return KINDS.findall(text.replace("* ", "  "))


def test_the_output_on_the_page_is_laid_out_as_the_real_one(runs: Path) -> None:
    shown = blocks(PAGE, "\nTraceML compare · base → new\n")[0]
    assert layout(shown) == layout(traceml(runs, "compare", "base", "new").out)


def test_every_command_on_the_pages_is_one_that_exists() -> None:
    from traceml_ai.cli.main import load, parser_of

    pages = (PAGE + CI + LIGHTNING).replace("\\\n", " ")
    commands = re.findall(r"^(?!\s*\w+: )[ ]*traceml (compare|history|runs) (.*)", pages, re.MULTILINE)
    assert [verb for verb, _ in commands] == ["compare", "compare", "history", "compare", "compare"]
    for verb, rest in commands:
        words = rest.replace("$sides", "--a base1 --b new1").partition(">")[0].split()
        load(verb).parse(parser_of(verb, load(verb)), words)


def test_the_page_shows_the_exit_codes_of_the_gate() -> None:
    assert re.findall(r"^\| (\d) \|", CI, re.MULTILINE) == ["0", "1", "2", "3"]
