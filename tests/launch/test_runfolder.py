from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collect.recorded import manifest
from traceml_ai.errors import TraceMLError
from traceml_ai.spool.atomic import write_atomic
from traceml_ai.spool.runfolder import birth_of, check_name, is_alive, read_manifest, unique_name

NOW = datetime(2026, 1, 31, 14, 25, 1, tzinfo=timezone.utc)


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_atomic(path, b"[]")
    done = threading.Event()

    def rewrite() -> None:
        for length in range(1000):
            write_atomic(path, json.dumps([length] * (length % 97)).encode())
        done.set()

    thread = threading.Thread(target=rewrite)
    thread.start()
    reads = 0
    while not done.is_set() or not reads:
        json.loads(path.read_bytes())
        reads += 1
    thread.join()

    assert [found.name for found in tmp_path.iterdir()] == ["a.json"]


def test_a_file_has_the_permissions_the_user_wants(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomic(tmp_path / "a", b"")
    finally:
        os.umask(before)

    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_a_failed_write_leaves_the_old_version_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()

    with pytest.raises(OSError, match="directory"):
        write_atomic(tmp_path / "a", b"x")

    assert [found.name for found in tmp_path.iterdir()] == ["a"]


def test_a_manifest_reads_as_it_was_written(tmp_path: Path) -> None:
    said = manifest(tmp_path, command=["python", os.fsdecode(b"\xff"), "ä"])
    said.write(tmp_path)

    assert read_manifest(tmp_path) == said


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "name a run folder"),
        ("{", "is not JSON"),
        ("[]", "is not a run manifest"),
        ('{"manifest_version": 99}', "is not a run manifest"),
        ('{"manifest_version": 1}', "lacks fields"),
    ],
)
def test_what_is_no_manifest_is_told(tmp_path: Path, content: str | None, complaint: str) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)

    with pytest.raises(TraceMLError, match=complaint):
        read_manifest(tmp_path)


@given(st.text(max_size=200))
def test_a_name_of_our_own_is_always_a_folder_name(stem: str) -> None:
    check_name(unique_name(stem, NOW))


def test_a_name_of_our_own_can_be_read() -> None:
    assert unique_name("train", NOW).startswith("train-20260131-142501-")
    assert unique_name("-", NOW).startswith("run-")


def test_a_process_lives_until_it_ends() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        birth = birth_of(child.pid)
        assert is_alive(child.pid, birth)
        assert not is_alive(child.pid, "1@another boot")

    assert not is_alive(child.pid, birth)


def test_a_zombie_does_not_live() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    assert birth_of(child.pid) is None

    child.wait()


def test_what_can_not_be_known_is_not_alive() -> None:
    assert not is_alive(None, None)
    assert not is_alive(os.getpid(), None)
