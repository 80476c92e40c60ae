from __future__ import annotations

from pathlib import Path

import pytest

from report.summaries import make_summary
from traceml_ai.report.card import render_card
from traceml_ai.report.write import write_summary
from traceml_ai.schema.summary import RunSection, decode


def test_the_json_holds_the_summary(tmp_path: Path) -> None:
    write_summary(tmp_path, make_summary())
    assert decode((tmp_path / "final_summary.json").read_bytes()) == make_summary()


def test_the_text_holds_the_card(tmp_path: Path) -> None:
    write_summary(tmp_path, make_summary())
    assert (tmp_path / "final_summary.txt").read_text(encoding="utf-8") == render_card(make_summary())


def test_a_second_write_replaces_the_first_and_leaves_nothing_else(tmp_path: Path) -> None:
    write_summary(tmp_path, make_summary())
    later = make_summary(run=RunSection(name="later", status="completed"))
    write_summary(tmp_path, later)
    assert decode((tmp_path / "final_summary.json").read_bytes()) == later
    assert sorted(path.name for path in tmp_path.iterdir()) == ["final_summary.json", "final_summary.txt"]


def test_a_folder_that_is_gone_is_the_callers_to_handle(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_summary(tmp_path / "gone", make_summary())
