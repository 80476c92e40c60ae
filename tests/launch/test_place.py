from __future__ import annotations

from pathlib import Path

import pytest

from traceml_ai.spool.place import Place, filesystem_of, is_network, judge, make_spool

MOUNTS = """\
22 1 0:20 / / rw - ext4 /dev/sda rw
23 22 0:21 / /home rw - nfs4 server:/home rw
24 23 0:22 / /home/me/fast\\040disk rw shared:1 - xfs /dev/sdb rw
"""


def usable(folder: Path) -> Place:
    return Place(folder, 1 << 40, "tmpfs", None)


@pytest.mark.parametrize(
    ("folder", "kind"), [("/tmp/x", "ext4"), ("/home/me", "nfs4"), ("/home/me/fast disk/a", "xfs")]
)
def test_the_innermost_mount_tells_the_file_system(tmp_path: Path, folder: str, kind: str) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTS)

    assert filesystem_of(Path(folder), tmp_path / "mountinfo") == kind


@pytest.mark.parametrize(
    ("kind", "network"),
    [("nfs4", True), ("lustre", True), ("fuse.sshfs", True), ("tmpfs", False), ("ext4", False)],
)
def test_network_file_systems_are_known(kind: str, *, network: bool) -> None:
    assert is_network(kind) is network


def test_a_network_file_system_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_text(f"1 0 0:1 / {tmp_path} rw - nfs4 server:/ rw\n")

    assert judge(tmp_path, mountinfo=tmp_path / "mountinfo").refused == "on a network file system (nfs4)"


def test_a_small_place_is_refused(tmp_path: Path) -> None:
    refused = judge(tmp_path, room=1 << 60).refused

    assert refused is not None
    assert "free" in refused


def test_an_absent_place_is_refused(tmp_path: Path) -> None:
    assert judge(tmp_path / "no").refused == "there is no such folder"


def test_the_spool_is_private(tmp_path: Path) -> None:
    folder, refused = make_spool(iter([tmp_path]), judge=usable)

    assert folder is not None
    assert folder.stat().st_mode & 0o777 == 0o700
    assert refused == []


def test_the_first_good_place_is_taken_and_the_refused_ones_are_told(tmp_path: Path) -> None:
    folder, refused = make_spool(iter([tmp_path / "no", tmp_path]), judge=lambda place: judge(place, room=0))

    assert folder is not None
    assert folder.parent == tmp_path
    assert [place.folder for place in refused] == [tmp_path / "no"]


def test_a_place_that_fails_after_all_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()

    folder, refused = make_spool(iter([file]), judge=usable)

    assert folder is None
    assert refused[0].refused == "Not a directory"
