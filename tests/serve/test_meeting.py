"""Where collectors and training processes meet: private, live, and unambiguous."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceml_ai.spool.meeting import (
    Meeting,
    Offer,
    choose,
    is_private,
    offers,
    read_joined,
)
from traceml_ai.spool.runfolder import birth_of


@pytest.fixture
def meet(tmp_path: Path) -> Path:
    spool = tmp_path / "spool"
    spool.mkdir(mode=0o700)
    return tmp_path / "meet"


def offer(meet: Path, **changed: object) -> Offer:
    made = Offer(os.getpid(), birth_of(os.getpid()), str(meet.parent / "spool"), "logs/a", "/here", [])
    return made._replace(**changed)  # type: ignore[arg-type]


def test_an_offer_is_found_until_it_is_withdrawn(meet: Path) -> None:
    meeting = Meeting(offer(meet), [meet])
    assert [found.folder for found in offers([meet])] == ["logs/a"]
    meeting.withdraw()
    assert offers([meet]) == []


def test_a_folder_that_others_may_enter_is_neither_used_nor_believed(meet: Path) -> None:
    Meeting(offer(meet), [meet])
    meet.chmod(0o755)
    assert offers([meet]) == []
    assert not Meeting(offer(meet), [meet]).is_open


def test_a_link_is_not_private(meet: Path) -> None:
    meet.symlink_to(meet.parent / "spool")
    assert not is_private(meet)


def test_an_offer_of_a_dead_collector_or_of_a_reused_process_id_is_passed_over(meet: Path) -> None:
    Meeting(offer(meet, birth="1@another boot"), [meet])
    assert offers([meet]) == []


def test_a_collector_waits_for_scripts_started_where_it_was(meet: Path) -> None:
    found = [offer(meet), offer(meet, folder="logs/b", cwd="/there")]
    chosen = choose(found, cwd="/there", parent=1, restarted=False)
    assert chosen.offer is not None
    assert chosen.offer.folder == "logs/b"
    assert "TRACEML_RUN_DIR" in choose(found[:1], cwd="/elsewhere", parent=1, restarted=False).why_not


def test_of_two_that_wait_in_one_place_none_is_guessed(meet: Path) -> None:
    found = [offer(meet), offer(meet, folder="logs/b")]
    assert "logs/a, logs/b" in choose(found, cwd="/here", parent=1, restarted=False).why_not


def test_a_complete_run_lets_in_only_what_its_launcher_starts_again(meet: Path) -> None:
    Meeting(offer(meet), [meet]).complete([7])
    found = offers([meet])
    assert choose(found, cwd="/here", parent=7, restarted=True).offer is not None
    assert choose(found, cwd="/here", parent=7, restarted=False).offer is None
    assert choose(found, cwd="/here", parent=8, restarted=True).offer is None


@given(st.binary(max_size=300) | st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(Offer._fields), inner),
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_whatever_lies_there_no_file_is_an_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    folder = tmp_path_factory.mktemp("meet")
    folder.chmod(0o700)
    (folder / "1.json").write_bytes(data)
    (folder / "joined-1.json").write_bytes(data)
    assert offers([folder]) == []
    assert read_joined(folder) == []
