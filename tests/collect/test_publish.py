from __future__ import annotations

from pathlib import Path

from traceml_ai.collect.notes import Notes
from traceml_ai.collect.publish import Publisher


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
