from __future__ import annotations

import os
from pathlib import Path

import pytest

from traceml_ai.launch.leftovers import KEEP_S, clean_leftovers

NOW_S = 1e9


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """An old spool folder with the log of process 12."""
    folder = tmp_path / "shm" / "traceml-spool-0"
    folder.mkdir(parents=True)
    (folder / "steps-12-00000.tlog").touch()
    os.utime(folder, (NOW_S - KEEP_S - 1, NOW_S - KEEP_S - 1))
    (tmp_path / "proc").mkdir()
    return folder


def clean(spool: Path, uid: int | None = None) -> list[Path]:
    return clean_leftovers([spool.parent], now_s=NOW_S, proc=spool.parent.parent / "proc", uid=uid)


def test_an_old_spool_of_dead_processes_is_removed(spool: Path) -> None:
    assert clean(spool) == [spool]
    assert not spool.exists()


def test_a_spool_whose_writer_lives_stays(spool: Path) -> None:
    (spool.parent.parent / "proc" / "12").mkdir()

    assert clean(spool) == []


def test_a_recent_spool_stays(spool: Path) -> None:
    os.utime(spool, (NOW_S, NOW_S))

    assert clean(spool) == []


def test_another_users_spool_stays(spool: Path) -> None:
    assert clean(spool, uid=os.getuid() + 1) == []


def test_other_folders_stay(spool: Path) -> None:
    other = spool.rename(spool.with_name("other"))

    assert clean(other) == []


def test_a_link_with_our_name_stays(spool: Path, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    spool.rename(target)
    spool.symlink_to(target)

    assert clean(spool) == []
    assert target.exists()
