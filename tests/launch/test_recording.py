from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from traceml_ai.errors import UsageError
from traceml_ai.spool.place import MEMORY
from traceml_ai.spool.recording import Plan, Recording, open_recording, remove, temporary_folder
from traceml_ai.spool.runfolder import read_manifest


def plan(logs: Path, name: str | None = None) -> Plan:
    return Plan(logs, name, "train", ["python", "train.py"], 1.0)


def nowhere(_logs: Path) -> Iterator[Path]:
    return iter(())


def refuse(_name: str) -> Path:
    raise PermissionError(13, "Permission denied", "/tmp")


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Recording]:
    found = open_recording(plan(tmp_path / "a" / "logs", "base"))
    yield found
    found.discard()


def test_a_run_gets_a_folder_a_spool_and_a_manifest(recording: Recording, tmp_path: Path) -> None:
    assert recording.folder == tmp_path / "a" / "logs" / "base"
    assert recording.spool is not None
    assert recording.spool.is_dir()
    assert read_manifest(recording.folder) == recording.manifest
    assert recording.problems == []


def test_discarding_leaves_nothing_behind(recording: Recording) -> None:
    recording.discard()

    assert recording.folder is not None
    assert not recording.folder.exists()
    assert recording.spool is not None
    assert not recording.spool.exists()


def test_a_taken_name_is_refused_and_leaves_no_spool(recording: Recording, tmp_path: Path) -> None:
    places: list[Path] = []

    def note(_logs: Path) -> Iterator[Path]:
        places.append(tmp_path)
        yield tmp_path

    with pytest.raises(UsageError, match="run name 'base' is taken"):
        open_recording(plan(tmp_path / "a" / "logs", "base"), spool_places=note)

    assert places
    assert list(tmp_path.glob("traceml-spool-*")) == []
    assert recording.folder is not None
    assert recording.folder.exists()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a\nb", ".hidden", "x" * 101])
def test_a_name_that_is_no_folder_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be a folder name"):
        open_recording(plan(tmp_path, name))


def test_unnamed_runs_get_names_of_their_own(tmp_path: Path) -> None:
    names = set()
    for _ in range(3):
        recording = open_recording(plan(tmp_path))
        names.add(recording.manifest.name)
        assert recording.folder == tmp_path / recording.manifest.name
        recording.discard()

    assert len(names) == 3
    assert all(name.startswith("train-20") for name in names)


def test_a_file_in_the_way_of_the_logs_folder_moves_the_run_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "logs").touch()
    other = tmp_path / "other"

    def elsewhere(_name: str) -> Path:
        other.mkdir()
        return other

    recording = open_recording(plan(tmp_path / "logs", "base"), elsewhere=elsewhere)

    assert recording.folder == other
    (problem,) = recording.problems
    assert problem == f"can't write to {tmp_path / 'logs'} (File exists): recording to {other}"
    recording.discard()


def test_without_any_folder_the_run_is_recorded_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "logs").touch()

    recording = open_recording(plan(tmp_path / "logs"), elsewhere=refuse)

    assert recording.folder is None
    assert recording.spool is not None
    assert "only the card will be shown" in recording.problems[0]
    recording.discard()


def test_without_a_place_for_the_step_log_the_run_has_a_folder_all_the_same(tmp_path: Path) -> None:
    recording = open_recording(plan(tmp_path, "base"), spool_places=nowhere)

    assert recording.folder == tmp_path / "base"
    assert recording.spool is None
    assert "steps are not measured" in recording.problems[0]


@pytest.mark.skipif(not MEMORY.is_dir(), reason="there is no /dev/shm")
def test_where_the_temporary_folder_takes_nothing_a_run_goes_to_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/dev/full")

    folder = temporary_folder("base")

    assert folder.parent.parent == MEMORY
    assert list(folder.iterdir()) == []
    remove(folder.parent)
