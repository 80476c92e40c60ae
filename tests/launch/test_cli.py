from __future__ import annotations

import json
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import traceml_ai
from launch.tool import TRACEML, run, script
from traceml_ai.cli.doctor import Check, extras, page
from traceml_ai.cli.main import VERBS, load, main


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])

    assert end.value.code == 0
    assert capsys.readouterr().out == f"traceml {traceml_ai.__version__}\n"


@pytest.mark.parametrize("words", [[], ["--help"]])
def test_the_overview_names_every_verb(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)

    shown = capsys.readouterr().out
    assert end.value.code == 0
    assert all(f"\n    {verb} " in shown for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_is_its_docstring(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([verb, "--help"])

    first = (load(verb).__doc__ or "").partition("\n")[0]
    assert first
    assert first in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["nope"], "invalid choice"),
        (["run"], "there is nothing to run"),
        (["run", "--mode", "other", "x.py"], "invalid choice: 'other'"),
        (["run", "--interval", "0", "x.py"], "0 is no number of seconds above 0"),
        (["run", "--interval", "nan", "x.py"], "nan is no number of seconds above 0"),
        (["run", "--interval", "fast", "x.py"], "invalid number of seconds value: 'fast'"),
        (["run", "--trace-max-steps", "0", "x.py"], "0 is no number above 0"),
        (["run", "--trace-max-steps", "1.5", "x.py"], "invalid whole number value: '1.5'"),
        (["run", "--json=1", "x.py"], "unknown option --json=1"),
        (["view"], "the following arguments are required: RUN"),
        (["view", "--jso", "x"], "unrecognized arguments: --jso"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(words)

    shown = capsys.readouterr()
    assert code == 2
    assert shown.out == ""
    assert shown.err.startswith("traceml: ")
    assert complaint in shown.err
    assert shown.err.count("\n") == 1


def test_a_dashboard_port_that_is_taken_is_said_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script(tmp_path, "raise SystemExit('started')")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        assert main(["run", "--mode", "dashboard", "--dashboard-port", str(port), "train.py"]) == 1

    said = f"can't listen on 127.0.0.1:{port} (Address already in use): choose another --dashboard-port"
    assert capsys.readouterr().err == f"traceml: {said}\n"
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize("mode", ["auto", "summary"])
def test_the_modes_that_are_built_run(mode: str, tmp_path: Path) -> None:
    script(tmp_path, "print('trained')")

    ended = run([*TRACEML, "run", "--mode", mode, "--no-save-training-output", "train.py"], tmp_path)

    assert (ended.returncode, ended.stdout) == (0, "trained\n")


def test_until_the_command_is_started_nothing_heavy_is_imported(tmp_path: Path) -> None:
    probe = script(
        tmp_path,
        """
        import sys
        from traceml_ai.launch import front
        from traceml_ai.cli.main import main

        def show(*_, **__):
            print(sorted({"numpy", "msgspec", "rich", "psutil", "torch", "scipy"} & set(sys.modules)))
            raise OSError("enough")

        front.Child = show
        main(["run", "--logs-dir", sys.argv[1], "probe.py"])
        """,
        "probe.py",
    )

    ended = run([sys.executable, str(probe), str(tmp_path / "logs")], tmp_path)

    assert ended.stdout == "[]\n"


def test_the_collector_never_imports_torch_or_scipy(tmp_path: Path) -> None:
    wrapper = script(
        tmp_path,
        """
        import sys
        from traceml_ai.cli.main import main
        code = main(["run", "hello.py"])
        print(code, sorted({"torch", "scipy"} & set(sys.modules)))
        """,
        "wrapper.py",
    )
    script(tmp_path, "import time; time.sleep(0.5)", "hello.py")

    assert run([sys.executable, str(wrapper)], tmp_path).stdout == "0 []\n"


def test_doctor_tells_what_is_there_and_what_is_not(tmp_path: Path) -> None:
    ended = run([*TRACEML, "doctor"], tmp_path)

    assert ended.returncode == 0
    assert len(ended.stdout.splitlines()) <= 40
    for topic in ("python", "torch", "devices", "processors", "memory", "step log", "worker memory", "clock"):
        assert f"\n{topic} " in ended.stdout
    assert "n/a here:" in ended.stdout
    assert list(tmp_path.iterdir()) == []


def test_doctor_tells_the_same_as_json(tmp_path: Path) -> None:
    found = json.loads(run([*TRACEML, "doctor", "--json"], tmp_path).stdout)

    topics = {check["topic"]: check for check in found["checks"]}
    assert topics["torch"]["found"].startswith("2.")
    assert found["traceml_version"] == traceml_ai.__version__


def test_doctor_says_that_everything_is_switched_off(tmp_path: Path) -> None:
    shown = run([*TRACEML, "doctor"], tmp_path, env={"TRACEML_DISABLED": "1"}).stdout

    assert "python: everything: TRACEML_DISABLED is set" in shown


def test_a_machine_that_lacks_nothing_says_so() -> None:
    assert page([Check("a", "1"), Check("longer", "2")]).splitlines() == [
        "a       1",
        "longer  2",
        "",
        "n/a here:",
        "  nothing",
    ]


def test_doctor_tells_which_extras_are_there_and_what_lacks_without_the_others() -> None:
    found = extras(lambda module: module in {"bokeh", "pytorch_lightning"})

    assert found[0].found == "dashboard, lightning"
    shown = page(found)
    assert "  [report]: no HTML pages (not installed)" in shown
    assert "  [parquet]: no Parquet export (not installed)" in shown
    assert "[lightning]" not in shown


def test_every_extra_that_can_be_installed_is_one_that_doctor_knows() -> None:
    for_developers = {"dev", "docs"}
    offered = set(metadata.metadata("traceml-ai").get_all("Provides-Extra") or ()) - for_developers
    known = {check.topic.strip("[]") for check in extras(lambda _: False)[1:]}

    assert offered <= known


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device here")
@pytest.mark.parametrize("words", [["runs"], ["runs", "--json"]])
def test_an_output_that_is_full_is_one_line(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [*TRACEML, *words], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )

    assert ended.stderr == "traceml: can't write the output (No space left on device)\n"
    assert ended.returncode == 2


@pytest.mark.parametrize("words", [["runs"], ["runs", "--json"]])
def test_an_output_that_is_closed_is_no_traceback(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()

    ended = run(["sh", "-c", 'exec "$@" >&-', "sh", *TRACEML, *words], tmp_path)

    assert (ended.returncode, ended.stderr) == (0, "")
