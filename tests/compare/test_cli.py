"""The commands `compare`, `runs` and `history`: what they read, print, write, and exit with."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from compare.sides import PHASES, make_run, step_time
from traceml_ai.cli.main import main
from traceml_ai.cli.runs import STATUSES
from traceml_ai.schema.run import Status
from traceml_ai.schema.summary import StepTimeSection, Summary, encode
from traceml_ai.spool.runfolder import SUMMARY_FILE

Put = Callable[..., Path]


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Put:
    """Write run folders below `logs`, in the folder where the commands are called."""
    monkeypatch.chdir(tmp_path)

    def write(
        name: str, factor: float = 1.0, *, seed: int = 0, summary: Summary | None = None, **run: Any
    ) -> Path:
        step = step_time({phase: factor * ms for phase, ms in PHASES.items()}, seed=seed)
        folder = Path("logs") / name
        folder.mkdir(parents=True)
        (folder / SUMMARY_FILE).write_bytes(encode(summary or make_run(step, name=name, **run)))
        return folder

    return write


Out = pytest.CaptureFixture[str]


def error(capfd: Out, *words: str) -> str:
    """Call a command that must fail as unusable; return its one line."""
    assert main(words) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("traceml: ")
    assert err.count("\n") == 1
    return err


# --- compare -----------------------------------------------------------------------------------------


def test_runs_are_named_by_name_folder_or_file(put: Put, capfd: Out) -> None:
    put("base")
    put("new", 2.0, seed=1)
    shown = set()
    for a, b in (
        ("base", "new"),
        ("logs/base", "logs/new/"),
        (f"logs/base/{SUMMARY_FILE}", f"logs/new/{SUMMARY_FILE}"),
    ):
        assert main(["compare", a, b]) == 0
        shown.add(capfd.readouterr().out)
    (text,) = shown
    assert text.startswith("TraceML compare · base → new\nREGRESSION step time +")


def test_a_name_is_looked_up_in_the_log_folder_that_was_given(put: Put, capfd: Out) -> None:
    put("base").parent.rename("elsewhere")
    assert main(["compare", "--logs-dir", "elsewhere", "base", "base"]) == 0


def test_several_runs_a_side_are_one_comparison(put: Put, capfd: Out) -> None:
    for i in range(3):
        put(f"a{i}", 1 + 0.001 * i, seed=i)
        put(f"b{i}", 1 + 0.001 * i, seed=10 + i)
    words = [word for i in range(3) for word in ("--a", f"a{i}", "--b", f"b{i}")]
    assert main(["compare", *words, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert (found["verdict"], found["noise"]["source"], len(found["a"]), len(found["b"])) == (
        "SAME",
        "runs",
        3,
        3,
    )


def test_earlier_runs_of_the_log_folder_give_the_noise(put: Put, capfd: Out) -> None:
    for i in range(8):
        put(f"past{i}", 1 + 0.002 * (i % 3), seed=i, started_at=f"2029-01-0{i + 1}T00:00:00+00:00")
    put("base")
    put("new", seed=20)
    assert main(["compare", f"logs/base/{SUMMARY_FILE}", "new"]) == 0
    out = capfd.readouterr().out
    assert out.startswith("TraceML compare · base → new\nSAME step time ")
    assert "was learnt from 8 earlier runs of train.py in logs." in out.replace("\n         ", " ")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], 0),
        (["--max-step-time-regression-pct", "5"], 1),
        (["--max-step-time-regression-pct", "200"], 0),
        (["--fail-on", "regression, unknown"], 1),
        (["--fail-on", "UNKNOWN"], 0),
        (["--max-memory-regression-pct", "1"], 0),
    ],
)
def test_the_exit_code_is_that_of_the_gate(put: Put, capfd: Out, words: list[str], code: int) -> None:
    put("base")
    put("slow", 1.5, seed=1)
    assert main(["compare", "base", "slow", *words]) == code


def test_runs_that_can_not_be_compared_exit_with_three(put: Put, capfd: Out) -> None:
    put("base")
    put("wide", batch_size=64)
    assert main(["compare", "base", "wide", "--fail-on", "REGRESSION"]) == 3
    assert "NOT_COMPARABLE: batch size differs: 8 and 64" in capfd.readouterr().out


@pytest.mark.parametrize(("b", "words", "code"), [("slow", ["--fail-on", "REGRESSION"], 1), ("wide", [], 3)])
def test_the_evidence_is_there_whatever_the_exit_code(
    put: Put, capfd: Out, b: str, words: list[str], code: int
) -> None:
    put("base")
    put("slow", 1.5, seed=1)
    put("wide", batch_size=64)
    assert main(["compare", "base", b, "--output", "evidence/deep/compare.v1", *words]) == code
    text = Path("evidence/deep/compare.v1.txt").read_text()
    found = json.loads(Path("evidence/deep/compare.v1.json").read_text())
    assert text == capfd.readouterr().out
    assert text.splitlines()[1].startswith(found["verdict"])
    assert found["passed"] is (False if code == 1 else None)


def test_markdown_is_for_a_pull_request(put: Put, capfd: Out) -> None:
    put("base")
    put("slow", 1.5, seed=1)
    assert main(["compare", "base", "slow", "--markdown"]) == 0
    assert capfd.readouterr().out.startswith("### 🔴 REGRESSION: step time +")


@pytest.mark.parametrize("form", [(), ("--json",), ("--markdown",)])
def test_a_folder_whose_name_is_no_text_is_compared_and_listed(
    put: Put, capfd: Out, form: tuple[str, ...]
) -> None:
    put("base")
    odd = os.fsdecode(b"caf\xe9")
    put(odd, 1.5, summary=make_run(name="odd"))
    assert main(["compare", "base", odd, "--output", "evidence/x", "--html", "x.html", *form]) == 0
    assert "odd" in capfd.readouterr().out
    assert json.loads(Path("evidence/x.json").read_bytes())["b"][0]["path"] == "logs/caf?"
    assert main(["runs", "--json"]) == 0
    assert {run["name"] for run in json.loads(capfd.readouterr().out)["runs"]} == {"base", "caf?"}
    assert main(["history", "train.py"]) == 0
    assert "caf?" in capfd.readouterr().out


def test_a_run_that_is_not_there_is_one_line_with_a_hint(put: Put, capfd: Out) -> None:
    put("baseline-1")
    said = error(capfd, "compare", "baseline1", "baseline-1")
    assert "there is no run baseline1: name a final_summary.json, a run folder, or a run in logs" in said
    assert "(did you mean baseline-1?)" in said


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (encode(make_run())[:900], "is cut off in the middle"),
        (b"epoch 1: loss 0.3", "is not JSON"),
        (b'{"traceml_version": "9", "schema_version": 99}', "was written by a newer TraceML (schema 99"),
        (b'{"loss": 1}', "is JSON but not a TraceML summary"),
        (b"", "is cut off in the middle"),
        (b"[" * 100_000 + b"]" * 100_000, "is JSON but nested too deeply"),
    ],
)
def test_a_file_that_can_not_be_used_is_one_line_that_names_it(
    put: Put, capfd: Out, content: bytes, said: str
) -> None:
    put("base")
    Path("bad.json").write_bytes(content)
    line = error(capfd, "compare", "base", "bad.json")
    assert line.startswith("traceml: bad.json ")
    assert said in line


def test_a_file_that_may_not_be_read_is_one_line(put: Put, capfd: Out) -> None:
    put("base")
    Path("logs/new").mkdir()
    Path(f"logs/new/{SUMMARY_FILE}").symlink_to("/proc/self/mem")
    assert "can't read logs/new" in error(capfd, "compare", "base", f"logs/new/{SUMMARY_FILE}")


def test_runs_without_a_step_are_one_line(put: Put, capfd: Out) -> None:
    nothing = make_run(StepTimeSection(diagnosis="NO_DATA"))
    for name in ("e1", "e2"):
        put(name, summary=nothing)
    said = error(capfd, "compare", "e1", "e2")
    assert (
        "logs/e1 and logs/e2: no steady step was measured, nothing to compare (traceml view says why)" in said
    )


@pytest.mark.parametrize("again", ["base", "logs/base", f"logs/base/{SUMMARY_FILE}"])
def test_a_run_named_twice_on_a_side_is_refused(put: Put, capfd: Out, again: str) -> None:
    put("base")
    put("new")
    said = error(capfd, "compare", "--a", "base", "--a", again, "--b", "new")
    assert said == f"traceml: base and {again} are the same run: name each run of a side once\n"


def test_a_folder_that_is_none_of_a_run_is_one_line(put: Put, capfd: Out) -> None:
    put("base")
    Path("other").mkdir()
    assert "other is no run folder" in error(capfd, "compare", "base", "other")


def test_evidence_that_can_not_be_written_is_one_line(put: Put, capfd: Out) -> None:
    put("base")
    Path("file").write_text("")
    assert "can't write file/x.json" in error(capfd, "compare", "base", "base", "--output", "file/x")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["base"], "two runs are compared, not 1"),
        (["a", "b", "c"], "two runs are compared, not 3"),
        ([], "there is nothing to compare"),
        (["--a", "base"], "there is nothing to compare"),
        (["base", "base", "--fail-on", "SLOWER"], "is no list of IMPROVEMENT, REGRESSION"),
        (["base", "base", "--fail-on", ","], "is no list of"),
        (["base", "base", "--max-step-time-regression-pct", "-1"], "-1 is no percentage of 0 or above"),
        (["base", "base", "--max-step-time-regression-pct", "nan"], "nan is no percentage"),
        (["base", "base", "--max-memory-regression-pct", "ten"], "invalid percentage value: 'ten'"),
        (["base", "base", "--json", "--markdown"], "not allowed with"),
    ],
)
def test_a_wrong_word_is_one_line(put: Put, capfd: Out, words: list[str], said: str) -> None:
    put("base")
    assert said in error(capfd, "compare", *words)


def test_a_terminal_without_unicode_gets_ascii(put: Put, tmp_path: Path) -> None:
    import subprocess
    import sys

    put("base")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "traceml_ai", "compare", "base", "base"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=True)
    assert b"TraceML compare | base -> base\n" in done.stdout


# --- runs and history ----------------------------------------------------------------------------------


def put_past(put: Put) -> None:
    for i in range(10):
        at = f"2030-01-{i + 1:02}T00:00:00+00:00"
        put(f"r{i}", 1.0 if i < 5 else 1.3, seed=i, started_at=at)


def test_runs_are_listed_with_filters_and_as_json(put: Put, capfd: Out) -> None:
    put_past(put)
    assert (
        main(
            ["runs", "--script", "train", "--since", "2030-01-05", "--verdict", "input_bound", "--last", "2"]
        )
        == 0
    )
    lines = capfd.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines[1:]] == ["r8", "r9"]
    assert main(["runs", "--json", "--status", "completed"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert (found["logs_dir"], len(found["runs"]), found["runs"][0]["change_pct"]) == ("logs", 10, None)


def test_a_history_shows_its_change_points(put: Put, capfd: Out) -> None:
    put_past(put)
    assert main(["history", "train.py"]) == 0
    assert "1 change point: " in capfd.readouterr().out
    assert main(["history", "train.py", "--json"]) == 0
    (series,) = json.loads(capfd.readouterr().out)["series"]
    assert [level["first_run"] for level in series["levels"]] == ["r0", "r5"]


def test_a_script_that_never_ran_is_one_line_with_those_that_did(put: Put, capfd: Out) -> None:
    put("base")
    assert main(["history", "eval.py"]) == 1
    said = capfd.readouterr().err
    assert said == "traceml: no run of eval.py with a step time in logs: there are runs of train.py\n"


def test_an_empty_log_folder_has_no_history(put: Put, capfd: Out) -> None:
    Path("logs").mkdir()
    assert main(["history", "eval.py"]) == 1
    assert "traceml runs lists what is there" in capfd.readouterr().err
    assert main(["runs"]) == 0
    assert capfd.readouterr().out == "no run to show\n"


def test_a_log_folder_that_is_not_there_is_one_line(put: Put, capfd: Out) -> None:
    assert main(["runs", "--logs-dir", "none"]) == 1
    assert "can't read the log folder none" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--last", "0"], "0 is no number of runs above 0"),
        (["--last", "x"], "invalid whole number value: 'x'"),
        (["--since", "yesterday"], "yesterday is no date: 2030-01-31"),
        (["--verdict", "slow"], "slow is no finding: INPUT_BOUND is one"),
        (["--status", "dead"], "invalid choice: 'dead'"),
    ],
)
def test_a_filter_that_can_not_be_is_one_line(put: Put, capfd: Out, words: list[str], said: str) -> None:
    assert said in error(capfd, "runs", *words)


@pytest.mark.parametrize(
    ("since", "left"),
    [("2030-01-09T00:00+00:00", 2), ("2030-01-09T02:00+02:00", 2), ("2030-01-09T00:00:01+00:00", 1)],
)
def test_a_date_is_taken_with_its_offset(put: Put, capfd: Out, since: str, left: int) -> None:
    put_past(put)
    assert main(["runs", "--since", since, "--json"]) == 0
    assert len(json.loads(capfd.readouterr().out)["runs"]) == left


def test_every_status_can_be_filtered_by() -> None:
    assert set(STATUSES) == {*get_args(Status), "unknown"}
