from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from traceml_ai.collect import publish
from traceml_ai.collect.notes import Notes
from traceml_ai.collect.publish import Publisher
from traceml_ai.spool.atomic import write_atomic


def test_a_file_goes_into_the_run_folder(tmp_path: Path) -> None:
    assert Publisher(tmp_path, lambda: None, Notes()).write("a", b"x") == tmp_path / "a"
    assert (tmp_path / "a").read_bytes() == b"x"


def test_a_folder_that_is_gone_is_replaced_and_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    publisher = Publisher(tmp_path / "gone", lambda: tmp_path, Notes(said.append))

    assert publisher.write("a", b"x") == tmp_path / "a"
    assert publisher.write("b", b"y") == tmp_path / "b"
    assert said == [f"the run's files go to {tmp_path}"]


def test_without_any_folder_nothing_is_written_and_the_reason_kept(tmp_path: Path) -> None:
    notes = Notes()
    publisher = Publisher(tmp_path / "gone", lambda: None, notes)

    assert publisher.write("a", b"x") is None
    assert notes.messages() == [f"can't write to {tmp_path / 'gone'} (No such file or directory)"]


def test_nothing_half_written_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()  # can't be replaced by a file
    publisher = Publisher(tmp_path, lambda: None, Notes())

    assert publisher.write("a", b"x") is None
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_folder_that_can_be_written_to_again_gets_the_files_again(tmp_path: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    other.mkdir()
    publisher = Publisher(home, lambda: other, Notes())
    assert publisher.write("a", b"x") == other / "a"

    home.mkdir()

    assert publisher.write("a", b"y") == home / "a"


def test_on_a_full_disk_the_old_version_makes_room_for_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def only_one_fits(path: Path, data: bytes) -> None:
        if any(tmp_path.iterdir()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_atomic(path, data)

    monkeypatch.setattr(publish, "write_atomic", only_one_fits)
    publisher = Publisher(tmp_path, lambda: None, Notes())
    publisher.write("a", b"old")

    assert publisher.write("a", b"new") == tmp_path / "a"
    assert (tmp_path / "a").read_bytes() == b"new"
