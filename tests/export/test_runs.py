"""`traceml run` and `traceml export` from the outside: what a run leaves, and shows while it goes on."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from export.test_metrics import Receiver
from launch.tool import PYTHON, TRACEML, Ended, end, run, run_folder, script, start, traced

# Writes the log as the probe would, without the second that importing torch takes.
TRAINING = """
    import os, sys, time
    sys.path.insert(0, {tests!r})
    from collect.recorded import facts, steps, writer
    from pathlib import Path
    spool = os.environ["TRACEML_SPOOL"]
    log = writer(spool)
    end = steps(log, 30, begin_ns=time.perf_counter_ns())
    print("ready", flush=True)
    until = time.monotonic() + 20
    while not os.path.exists("go") and time.monotonic() < until:
        time.sleep(0.02)
    steps(log, 30, begin_ns=end, first=30)
    facts(Path(spool), os.getpid(), clean_exit=True)
"""


def training(folder: Path, *, waits: bool = False) -> Path:
    if not waits:
        (folder / "go").touch()
    return script(folder, TRAINING.format(tests=str(Path(__file__).parents[1])))


def export(folder: Path, *words: str) -> Ended:
    return run([*TRACEML, "export", *words], folder)


# --- after the run -------------------------------------------------------------------------------


def test_a_run_keeps_its_steps_for_every_format(tmp_path: Path) -> None:
    training(tmp_path)
    assert traced(["--run-name", "base", "train.py"], tmp_path).returncode == 0
    ended = export(tmp_path, "base", "--csv", "s.csv", "--parquet", "s.parquet", "--perfetto", "t.json")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == [f"{name}: all 60 steps" for name in ("s.parquet", "s.csv", "t.json")]
    with (tmp_path / "s.csv").open(newline="") as file:
        assert [int(row["step"]) for row in csv.DictReader(file)] == list(range(60))
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


def test_steps_are_not_kept_when_nobody_wants_them(tmp_path: Path) -> None:
    training(tmp_path)
    traced(["--run-name", "base", "--no-keep-steps", "train.py"], tmp_path)
    assert not (tmp_path / "logs/base/steps.npz").exists()
    ended = export(tmp_path, "logs/base", "--csv", "s.csv")
    assert ended.returncode == 1
    assert ended.stderr.startswith("traceml: there is no logs/base/steps.npz")


def test_a_program_that_never_trains_leaves_no_steps(tmp_path: Path) -> None:
    script(tmp_path, "pass")
    traced(["--run-name", "base", "train.py"], tmp_path)
    assert not (tmp_path / "logs/base/steps.npz").exists()
    assert export(tmp_path, "base", "--csv", "s.csv").stderr.startswith("traceml: base has no step to export")


def test_the_folder_of_an_export_is_made(tmp_path: Path) -> None:
    training(tmp_path)
    traced(["--run-name", "base", "train.py"], tmp_path)
    assert export(tmp_path, "base", "--csv", "out/of/it/s.csv").returncode == 0
    assert (tmp_path / "out/of/it/s.csv").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="whether a process lives is told by /proc")
def test_a_run_whose_collector_was_killed_keeps_its_steps_once_it_is_looked_at(tmp_path: Path) -> None:
    training(tmp_path, waits=True)
    launcher = start([*TRACEML, "run", "--run-name", "base", "train.py"], tmp_path)
    launcher.send_signal(signal.SIGKILL)
    (tmp_path / "go").touch()
    launcher.wait()
    assert launcher.stdout is not None
    assert launcher.stderr is not None
    launcher.stdout.read()  # until the training process is gone
    launcher.stdout.close()
    launcher.stderr.close()
    ended = export(tmp_path, "logs/base", "--csv", "s.csv")
    assert (ended.stderr, ended.stdout) == ("", "s.csv: all 60 steps\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["logs/base"], "nothing to write"),
        (["nowhere", "--csv", "s.csv"], "there is no run nowhere"),
        ([".", "--csv", "s.csv"], "is no run folder"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(tmp_path: Path, words: list[str], says: str) -> None:
    script(tmp_path, "pass")
    ended = export(tmp_path, *words)
    assert ended.returncode == 2
    assert says in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


# --- the report ----------------------------------------------------------------------------------


def test_the_report_lies_beside_the_summary(tmp_path: Path) -> None:
    training(tmp_path)
    ended = traced(["--run-name", "base", "--html-report", "train.py"], tmp_path)
    assert ended.returncode == 0
    assert ended.stderr.splitlines()[-1] == "traceml: report: logs/base/report.html"
    assert b"Content-Security-Policy" in (tmp_path / "logs/base/report.html").read_bytes()


def test_the_json_is_the_last_line_whatever_else_is_said(tmp_path: Path) -> None:
    training(tmp_path)
    ended = traced(["--run-name", "base", "--json", "--html-report", "train.py"], tmp_path)
    assert ended.returncode == 0
    lines = ended.stderr.splitlines()
    assert lines[-2] == "traceml: report: logs/base/report.html"
    assert json.loads(lines[-1])["run"]["name"] == "base"


def test_view_makes_the_same_report(tmp_path: Path) -> None:
    training(tmp_path)
    traced(["--run-name", "base", "--html-report", "train.py"], tmp_path)
    ended = run([*TRACEML, "view", "logs/base", "--html", "--output", "mine.html"], tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "mine.html\n")
    shown = [re.sub(r'"charts">.*', "", (tmp_path / p).read_text(), flags=re.DOTALL) for p in
             ("mine.html", "logs/base/report.html")]  # fmt: skip
    assert shown[0] == shown[1]


def test_view_puts_the_report_beside_what_it_is_of(tmp_path: Path) -> None:
    script(tmp_path, "pass")
    traced(["--run-name", "base", "train.py"], tmp_path)
    (tmp_path / "copy.json").write_bytes((tmp_path / "logs/base/final_summary.json").read_bytes())
    for path, page in (("logs/base", "logs/base/report.html"), ("copy.json", "copy.html")):
        assert run([*TRACEML, "view", path, "--html"], tmp_path).stdout == f"{page}\n"
        assert (tmp_path / page).exists()


def test_a_page_that_can_not_be_written_is_one_line(tmp_path: Path) -> None:
    script(tmp_path, "pass")
    traced(["--run-name", "base", "train.py"], tmp_path)
    ended = run([*TRACEML, "view", "logs/base", "--html", "--output", "train.py/page.html"], tmp_path)
    assert ended.returncode == 1
    assert ended.stderr.startswith("traceml: can't write train.py/page.html")


@pytest.mark.parametrize(
    ("module", "words", "extra"),
    [
        ("bokeh", ["run", "--html-report", "train.py"], "report"),
        ("prometheus_client", ["run", "--prometheus", "0", "train.py"], "prometheus"),
        ("opentelemetry", ["run", "--otlp", "http://localhost:4318", "train.py"], "otlp"),
        ("pyarrow", ["export", "logs/base", "--parquet", "s.parquet"], "parquet"),
        ("jinja2", ["view", "logs/base", "--html"], "report"),
    ],
)
def test_what_is_not_installed_is_said_before_anything_starts(
    tmp_path: Path, module: str, words: list[str], extra: str
) -> None:
    training(tmp_path)
    if words[0] != "run":
        traced(["--run-name", "base", "train.py"], tmp_path)
    without = (
        f"import sys; sys.modules[{module!r}] = None; from traceml_ai.cli.main import main; sys.exit(main())"
    )
    ended = run([*PYTHON, "-c", without, *words], tmp_path)
    assert ended.returncode in {1, 2}
    assert f'pip install "traceml-ai[{extra}]"' in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert words[0] != "run" or not (tmp_path / "logs").exists()


# --- while the run goes on -----------------------------------------------------------------------


def test_prometheus_can_scrape_a_run_that_goes_on(tmp_path: Path) -> None:
    training(tmp_path, waits=True)
    launcher = start([*TRACEML, "run", "--run-name", "base", "--prometheus", "0", "train.py"], tmp_path)
    try:
        assert launcher.stderr is not None
        lines = iter(launcher.stderr.readline, "")
        url = next(m.group() for line in lines if (m := re.search(r"http://127\.0\.0\.1:\d+/metrics", line)))
        until = time.monotonic() + 20
        while not re.search(r'traceml_steps_total\{rank="0",run="base"\} [1-9]', text := fetch(url)):
            assert time.monotonic() < until, text
            time.sleep(0.1)
    finally:
        (tmp_path / "go").touch()
    assert end(launcher).returncode == 0


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return str(answer.read().decode())


def test_a_run_sends_its_last_figures_over_otlp(tmp_path: Path) -> None:
    training(tmp_path)
    receiver = Receiver()
    ended = traced(["--run-name", "base", "--otlp", receiver.url, "train.py"], tmp_path)
    receiver.stop()
    assert ended.returncode == 0
    (resource,) = receiver.requests[-1].resource_metrics
    metrics = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
    assert [point.as_double for point in metrics["traceml.steps"].sum.data_points] == [60]


def test_a_receiver_that_is_away_does_not_change_the_exit_code(tmp_path: Path) -> None:
    script(tmp_path, "raise SystemExit(7)")
    ended = traced(["--otlp", "http://127.0.0.1:9", "train.py"], tmp_path)
    assert ended.returncode == 7
    assert "Traceback" not in ended.stderr


def test_a_run_without_these_options_loads_none_of_their_packages(tmp_path: Path) -> None:
    training(tmp_path)
    code = (
        "import sys; from traceml_ai.cli.main import main; main(['run', 'train.py']); "
        "heavy = ('bokeh', 'jinja2', 'prometheus_client', 'opentelemetry', 'pyarrow'); "
        "print([m for m in heavy if m in sys.modules])"
    )
    ended = run([*PYTHON, "-c", code], tmp_path, env={**os.environ})
    assert ended.stdout.splitlines()[-1] == "[]"
    assert run_folder(tmp_path).joinpath("steps.npz").exists()
