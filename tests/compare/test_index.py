"""The index of a log folder: what is read, what is kept, and lists and series of runs made from it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compare.sides import PHASES, make_run, step_time
from traceml_ai.errors import TraceMLError
from traceml_ai.index import cache
from traceml_ai.index.cache import INDEX_FILE, log_folders, read_runs
from traceml_ai.index.listing import Filter, listed, series
from traceml_ai.index.past import past_runs
from traceml_ai.schema.summary import StepTimeSection, Summary, encode
from traceml_ai.spool.runfolder import MANIFEST_FILE, SUMMARY_FILE


def put(logs: Path, name: str, summary: Summary | None = None, **run: Any) -> Summary:
    """Write a run folder; its runs start in the order of their names."""
    found = summary or make_run(name=name, **{"started_at": f"2030-01-01T00:00:00+{name}", **run})
    (logs / name).mkdir(parents=True, exist_ok=True)
    (logs / name / SUMMARY_FILE).write_bytes(encode(found))
    return found


def times(factor: float, seed: int = 0) -> Any:
    return step_time({name: factor * ms for name, ms in PHASES.items()}, seed=seed)


def put_series(logs: Path, *factors: float, **run: Any) -> None:
    for i, factor in enumerate(factors):
        at = f"2030-01-{i + 1:02}T00:00:00+00:00"
        put(logs, f"r{i:02}", make_run(times(factor, i), name=f"r{i:02}", started_at=at, **run))


def test_a_row_holds_what_a_list_shows(tmp_path: Path) -> None:
    put(tmp_path, "a")
    (row,) = read_runs(tmp_path)
    assert (row.folder, row.script, row.status, row.diagnosis) == (
        "a",
        "train.py",
        "completed",
        "INPUT_BOUND",
    )
    assert row.arguments == {"--lr": "0.1"}
    assert row.settings["batch size"] == "8"
    assert row.step_ms == pytest.approx(16.5, rel=0.01)
    assert row.relative_variance == pytest.approx(1e-4 / 40, rel=0.9)


def test_what_is_no_run_folder_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    assert read_runs(tmp_path) == []


def test_runs_are_in_the_order_they_started(tmp_path: Path) -> None:
    put(tmp_path, "z", started_at="2030-01-01T00:00:00+00:00")
    put(tmp_path, "a", started_at="2030-01-02T00:00:00+00:00")
    assert [row.folder for row in read_runs(tmp_path)] == ["z", "a"]


def test_an_unchanged_summary_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "a")
    first = read_runs(tmp_path)
    monkeypatch.setattr(cache, "_read", lambda *_: pytest.fail("read again"))
    assert read_runs(tmp_path) == first


def test_a_changed_summary_is_read_again_and_a_removed_one_forgotten(tmp_path: Path) -> None:
    put(tmp_path, "a", status="running")
    put(tmp_path, "b")
    read_runs(tmp_path)
    put(tmp_path, "a", status="completed", exit_code=0)
    (tmp_path / "b" / SUMMARY_FILE).unlink()
    (row,) = read_runs(tmp_path)
    assert row.status == "completed"


@pytest.mark.parametrize("content", [b"", b"\x00garbage", b"\x82\xa7version\x00\xa4rows\x90"])
def test_a_cache_that_is_damaged_or_of_another_version_is_made_anew(tmp_path: Path, content: bytes) -> None:
    put(tmp_path, "a")
    good = read_runs(tmp_path)
    (tmp_path / INDEX_FILE).write_bytes(content)
    assert read_runs(tmp_path) == good
    assert (tmp_path / INDEX_FILE).stat().st_size > 20


def test_the_cache_may_be_deleted(tmp_path: Path) -> None:
    put(tmp_path, "a")
    good = read_runs(tmp_path)
    (tmp_path / INDEX_FILE).unlink()
    assert read_runs(tmp_path) == good


def test_a_cache_that_can_not_be_written_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    put(tmp_path, "a")
    monkeypatch.setattr(cache, "write_atomic", refuse)
    assert len(read_runs(tmp_path)) == 1
    assert not (tmp_path / INDEX_FILE).exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"epoch 1", "not a TraceML summary, or damaged"),
        (b'{"loss": 1}', "not a TraceML summary, or damaged"),
        (b"", "not a TraceML summary, or damaged"),
    ],
)
def test_what_can_not_be_read_is_a_row_that_says_why(tmp_path: Path, content: bytes, said: str) -> None:
    put(tmp_path, "a")
    (tmp_path / "a" / SUMMARY_FILE).write_bytes(content)
    (row,) = read_runs(tmp_path)
    assert row.problem is not None
    assert said in row.problem


def test_a_newer_summary_says_so(tmp_path: Path) -> None:
    data = json.loads(encode(put(tmp_path, "a")))
    (tmp_path / "a" / SUMMARY_FILE).write_text(json.dumps({**data, "schema_version": 99}))
    assert read_runs(tmp_path)[0].problem == "written by a newer TraceML (schema 99)"


def test_a_summary_that_is_a_folder_says_so(tmp_path: Path) -> None:
    (tmp_path / "a" / SUMMARY_FILE).mkdir(parents=True)
    assert "can't be read" in (read_runs(tmp_path)[0].problem or "")


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ('{"started_at": "2030"}', "has no summary yet: traceml view a rebuilds it"),
        ('{"started_at": 5}', "has no summary yet"),
        ("[]", "is damaged"),
        ("x", "is damaged"),
        ("[" * 100_000, "is damaged"),
    ],
)
def test_a_run_without_a_summary_is_listed(tmp_path: Path, manifest: str, said: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / MANIFEST_FILE).write_text(manifest)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / MANIFEST_FILE).write_text('{"started_at": "2030"}')
    row = next(row for row in read_runs(tmp_path) if row.folder == "a")
    assert row.status == "unknown"
    assert said in (row.problem or "")


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(TraceMLError, match=r"can't read the log folder .*none.*--logs-dir"):
        read_runs(tmp_path / "none")


# --- lists -------------------------------------------------------------------------------------------


def test_the_change_is_that_from_the_last_run_of_the_same_kind(tmp_path: Path) -> None:
    put(tmp_path, "a", make_run(times(1.0), name="a"), started_at="2030-01-01")
    put(tmp_path, "b", make_run(times(9.0), name="b", batch_size=64, started_at="2030-01-03T00:00:00"))
    put(tmp_path, "c", make_run(times(1.5), name="c", started_at="2030-01-04T00:00:00"))
    runs = {run.name: run.change_pct for run in listed(read_runs(tmp_path), Filter())}
    assert runs["c"] == pytest.approx(50, abs=2)
    assert (runs["a"], runs["b"]) == (None, None)


def test_runs_are_filtered_and_changes_still_refer_to_all(tmp_path: Path) -> None:
    put_series(tmp_path, 1.0, 2.0, 3.0)
    put(
        tmp_path,
        "x",
        status="failed",
        exit_code=1,
        started_at="2029-01-01T00:00:00",
        command=["python", "eval.py"],
    )
    rows = read_runs(tmp_path)

    def names(**wanted: Any) -> list[str]:
        return [run.name for run in listed(rows, Filter(**wanted))]

    assert names() == ["x", "r00", "r01", "r02"]
    assert (
        names(script="train") == names(script="src/train.py") == names(script="tr*") == ["r00", "r01", "r02"]
    )
    assert names(status="failed") == ["x"]
    assert names(diagnosis="COMPUTE_BOUND") == []
    assert names(since="2030-01-02") == ["r01", "r02"]
    assert names(last=1) == ["r02"]
    assert listed(rows, Filter(last=1))[0].change_pct == pytest.approx(50, abs=2)


def test_a_series_has_levels_that_begin_at_change_points(tmp_path: Path) -> None:
    put_series(tmp_path, *[1.0] * 5, *[1.4] * 5)
    (found,) = series(read_runs(tmp_path), Filter(script="train.py"))
    assert [(level.first_run, level.runs) for level in found.levels] == [("r00", 5), ("r05", 5)]
    assert found.levels[1].change_pct == pytest.approx(40, abs=2)
    assert found.settings["batch size"] == "8"


def test_runs_with_other_settings_are_a_series_of_their_own(tmp_path: Path) -> None:
    put_series(tmp_path, 1.0, 1.0)
    put(tmp_path, "big", batch_size=64, started_at="2031-01-01T00:00:00+00:00")
    found = series(read_runs(tmp_path), Filter())
    assert [len(each.runs) for each in found] == [2, 1]


def test_a_series_may_be_cut_to_its_last_runs(tmp_path: Path) -> None:
    put_series(tmp_path, *[1.0] * 5)
    (found,) = series(read_runs(tmp_path), Filter(last=2))
    assert [run.name for run in found.runs] == ["r03", "r04"]


# --- earlier runs ------------------------------------------------------------------------------------


def test_earlier_runs_that_are_alike_are_found_by_their_arguments(tmp_path: Path) -> None:
    put_series(tmp_path, *[1.0] * 4)
    put(
        tmp_path,
        "other-arguments",
        command=["python", "train.py", "--lr", "9"],
        started_at="2030-01-02T00:00:00",
    )
    put(tmp_path, "other-script", command=["python", "eval.py"], started_at="2030-01-02T00:00:00")
    put(tmp_path, "other-batch", batch_size=99, started_at="2030-01-02T00:00:00")
    put(tmp_path, "failed", status="failed", started_at="2030-01-02T00:00:00")
    put(tmp_path, "later", started_at="2031-01-01T00:00:00")
    now = make_run(name="now", started_at="2030-06-01T00:00:00")
    found = past_runs([tmp_path], [tmp_path / "r00"], [now])
    assert sorted(len(group) for group in found.groups) == [1, 3]


def test_a_folder_that_can_not_be_read_has_no_earlier_runs(tmp_path: Path) -> None:
    assert past_runs([tmp_path / "none"], [], [make_run()]).groups == []


def test_earlier_runs_are_told_by_the_folder_as_the_user_sees_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    assert past_runs([tmp_path / "logs"], [], [make_run()]).place == "logs"
    assert past_runs([Path("/nowhere")], [], [make_run()]).place == "/nowhere"
    assert past_runs([], [], [make_run()]).place == "the log folder"


def test_the_log_folder_is_that_above_the_run(tmp_path: Path) -> None:
    put(tmp_path, "a")
    (tmp_path / "loose.json").write_text("{}")
    paths = [tmp_path / "a", tmp_path / "a" / SUMMARY_FILE, tmp_path / "loose.json"]
    assert list(log_folders(paths)) == [tmp_path, tmp_path]


def test_a_thousand_runs_are_read_in_a_moment_and_kept_in_little_space(tmp_path: Path) -> None:
    data = encode(make_run())
    for i in range(1000):
        folder = tmp_path / f"r{i}"
        folder.mkdir()
        (folder / SUMMARY_FILE).write_bytes(data)
    begin = time.process_time()
    assert len(read_runs(tmp_path)) == 1000
    assert time.process_time() - begin < 1.5  # a tenth of what must take three seconds, on a slow machine
    assert (tmp_path / INDEX_FILE).stat().st_size < 1000 * len(data) / 5


@pytest.mark.parametrize("step_ms", [0.0, -1.0, 1e300])
def test_a_step_time_that_is_none_is_left_out(tmp_path: Path, step_ms: float) -> None:
    put(tmp_path, "a", make_run(msgspec.structs.replace(step_time(), step_ms=step_ms)))
    assert read_runs(tmp_path)[0].step_ms is None


def test_a_row_of_a_run_with_no_step_has_no_step_time(tmp_path: Path) -> None:
    put(tmp_path, "a", make_run(StepTimeSection(diagnosis="NO_DATA")))
    (row,) = read_runs(tmp_path)
    assert (row.step_ms, row.relative_variance, row.problem) == (None, None, None)
