"""Whatever is wrong around it, training runs to its own end."""

from __future__ import annotations

import concurrent.futures
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from launch.tool import TRACEML, Ended, manifest, run, script, summary, traced

TEXT = "print('trained'); raise SystemExit(4)"


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, str]:
    """An environment whose temporary folder is ours to look at."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    return {"TMPDIR": str(folder)}


def said(ended: Ended) -> list[str]:
    return [line for line in ended.stderr.splitlines() if line.startswith("traceml:")]


def test_a_file_where_the_logs_folder_should_be(tmp_path: Path, elsewhere: dict[str, str]) -> None:
    script(tmp_path, TEXT)
    (tmp_path / "logs").write_text("mine")

    ended = traced(["train.py"], tmp_path, env=elsewhere)

    assert (ended.returncode, ended.stdout) == (4, "trained\n")
    (line,) = said(ended)
    assert line.startswith("traceml: can't write to logs (File exists): recording to ")
    assert (tmp_path / "logs").read_text() == "mine"
    assert len(list((tmp_path / "tmp").glob("traceml-*/*/final_summary.json"))) == 1


@pytest.mark.parametrize("logs", ["/dev/full", "/dev/full/x", "/proc/x", "/sys/x"])
def test_a_logs_folder_that_can_not_be(tmp_path: Path, elsewhere: dict[str, str], logs: str) -> None:
    script(tmp_path, TEXT)

    ended = traced(["--logs-dir", logs, "--run-name", "base", "train.py"], tmp_path, env=elsewhere)

    assert (ended.returncode, ended.stdout) == (4, "trained\n")
    assert len(said(ended)) == 1
    assert len(list((tmp_path / "tmp").glob("traceml-*/base/final_summary.json"))) == 1


def test_neither_logs_nor_a_temporary_folder(tmp_path: Path) -> None:
    script(tmp_path, TEXT)
    wrapper = script(
        tmp_path,
        """
        import sys, tempfile
        from traceml_ai.cli.main import main
        tempfile.mkdtemp = lambda **_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
        sys.exit(main())
        """,
        "wrapper.py",
    )

    ended = run([TRACEML[0], str(wrapper), "run", "--logs-dir", "/dev/full", "train.py"], tmp_path)

    assert (ended.returncode, ended.stdout) == (4, "trained\n")
    (line,) = said(ended)
    assert "only the card will be shown" in line
    assert "failed" in ended.stderr


def test_a_folder_that_is_removed_while_training(tmp_path: Path, elsewhere: dict[str, str]) -> None:
    script(tmp_path, "import shutil; shutil.rmtree('logs'); print('trained')")

    ended = traced(["train.py"], tmp_path, env=elsewhere)

    assert (ended.returncode, ended.stdout) == (0, "trained\n")
    assert "the run's files go to" in ended.stderr
    assert len(list((tmp_path / "tmp").glob("traceml-*/*/final_summary.json"))) == 1


def test_the_step_log_stays_for_traceml_view_when_no_summary_could_be_written(tmp_path: Path) -> None:
    script(tmp_path, TEXT)
    wrapper = script(
        tmp_path,
        """
        import sys
        from traceml_ai.cli.main import main
        from traceml_ai.collect import publish

        def fail(*_):
            raise OSError(28, "No space left on device")

        publish.write_atomic = fail
        sys.exit(main())
        """,
        "wrapper.py",
    )

    ended = run([TRACEML[0], str(wrapper), "run", "train.py"], tmp_path)

    assert ended.returncode == 4
    (folder,) = (tmp_path / "logs").iterdir()
    assert f"the steps stay: traceml view logs/{folder.name}" in ended.stderr
    assert Path(manifest(tmp_path)["spool"]).is_dir()
    assert run([*TRACEML, "view", f"logs/{folder.name}"], tmp_path).returncode == 0
    assert not Path(manifest(tmp_path)["spool"]).exists()


def test_no_home_and_no_temporary_folder_in_the_environment(tmp_path: Path) -> None:
    script(tmp_path, TEXT)
    clean = {"PATH": os.defpath, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}

    ended = subprocess.run(
        [*TRACEML, "run", "train.py"], cwd=tmp_path, env=clean, capture_output=True, text=True, check=False
    )

    assert (ended.returncode, ended.stdout) == (4, "trained\n")
    assert summary(tmp_path)["run"]["status"] == "failed"


@pytest.mark.parametrize("stream", ["2>/dev/full", "2>&-", "2>/dev/null"])
def test_a_standard_error_that_takes_nothing(tmp_path: Path, stream: str) -> None:
    script(tmp_path, TEXT)
    shell = " ".join([*TRACEML, "run", "train.py"])

    ended = run(["sh", "-c", f"{shell} {stream}"], tmp_path)

    assert (ended.returncode, ended.stdout) == (4, "trained\n")
    assert summary(tmp_path)["run"]["exit_code"] == 4


@pytest.mark.parametrize("broken", ["__init__", "tick", "pause_s", "finish"])
def test_an_error_in_the_collector_is_not_the_trainings(tmp_path: Path, broken: str) -> None:
    script(tmp_path, "import time; print('trained'); time.sleep(0.8); raise SystemExit(4)")
    wrapper = script(
        tmp_path,
        f"""
        import sys
        from traceml_ai.cli.main import main
        from traceml_ai.collect.collector import Collector

        def fail(*_, **__):
            raise RuntimeError("broken on purpose")

        Collector.{broken} = fail
        sys.exit(main())
        """,
        "wrapper.py",
    )

    ended = run([TRACEML[0], str(wrapper), "run", "train.py"], tmp_path)

    assert (ended.returncode, ended.stdout) == (4, "trained\n")
    assert ["broken on purpose" in line for line in said(ended)].count(True) == 1
    assert "Traceback" not in ended.stderr
    shutil.rmtree(manifest(tmp_path)["spool"], ignore_errors=True)  # kept for `traceml view`


def test_a_taken_run_name_is_an_error_before_training(tmp_path: Path) -> None:
    script(tmp_path, TEXT)
    (tmp_path / "logs" / "base").mkdir(parents=True)

    ended = traced(["--run-name", "base", "train.py"], tmp_path)

    assert (ended.returncode, ended.stdout) == (2, "")
    assert said(ended) == ["traceml: run name 'base' is taken (logs/base exists): choose another --run-name"]
    assert list((tmp_path / "logs" / "base").iterdir()) == []


def test_two_runs_at_once_do_not_meet(tmp_path: Path) -> None:
    script(tmp_path, "import time; time.sleep(0.5); print('trained')")

    with concurrent.futures.ThreadPoolExecutor() as pool:
        both = list(pool.map(lambda _: traced(["train.py"], tmp_path), range(2)))

    assert [(ended.returncode, ended.stdout) for ended in both] == [(0, "trained\n")] * 2
    assert len(list((tmp_path / "logs").glob("train-*/final_summary.json"))) == 2


def test_a_missing_script_is_pythons_error(tmp_path: Path) -> None:
    ended = traced(["nope.py"], tmp_path)

    assert ended.returncode == 2
    assert "can't open file" in ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("command", "code"), [("no-such-command", 127), ("./data.txt", 126)])
def test_a_command_that_can_not_be_started(tmp_path: Path, command: str, code: int) -> None:
    (tmp_path / "data.txt").write_text("not a program")

    ended = traced(["--", command], tmp_path)

    assert ended.returncode == code
    (line,) = said(ended)
    assert command in line
    assert list((tmp_path / "logs").iterdir()) == []


def test_no_spool_is_left_behind(tmp_path: Path) -> None:
    script(tmp_path, TEXT)
    traced(["train.py"], tmp_path)

    assert not Path(manifest(tmp_path)["spool"]).exists()
