"""The secret of a link: private, random, and shown nowhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from traceml_ai.errors import UsageError
from traceml_ai.link.keys import VARIABLE, derive, find_secret, new_secret, write_secret
from traceml_ai.link.place import find_place


def test_both_ends_derive_the_same_keys_and_another_secret_gives_others() -> None:
    secret = new_secret()
    assert derive(secret) == derive(secret)
    assert derive(secret) != derive(new_secret())


def test_a_secret_is_written_to_a_file_that_nobody_else_can_read(tmp_path: Path) -> None:
    path = tmp_path / "run.key"
    secret = write_secret(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert find_secret(path, {}) == secret
    with pytest.raises(UsageError, match="File exists"):
        write_secret(path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_file_that_others_can_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "run.key"
    write_secret(path)
    path.chmod(mode)
    with pytest.raises(UsageError, match="others may read"):
        find_secret(path, {})


@pytest.mark.parametrize("weak", ["", "password", "00" * 32, "0123456789abcdef" * 4, "ab" * 31, "zz" * 32])
def test_a_weak_secret_is_refused_and_not_repeated(weak: str) -> None:
    with pytest.raises(UsageError, match="make one with traceml key") as refused:
        find_secret(None, {VARIABLE: weak})
    assert not weak or weak not in str(refused.value)


def test_keys_and_places_do_not_print_what_is_secret() -> None:
    secret = new_secret()
    place = find_place("1", None, ("2", "1", "1"), {VARIABLE: secret})
    shown = repr(derive(secret)) + str(derive(secret)) + repr(place) + str(place) + repr(derive(secret).owner)
    assert secret not in shown
    assert derive(secret).owner.secret.decode() not in shown


def test_the_programs_environment_no_longer_holds_the_secret() -> None:
    environ = {VARIABLE: new_secret()}
    find_place("29400", None, ("2", "0", None), environ)
    assert environ == {}


def test_an_address_is_the_loopback_one_unless_it_is_named() -> None:
    environ = {VARIABLE: new_secret()}
    assert find_place("29400", None, ("2", "0", None), dict(environ)).address == "127.0.0.1:29400"
    assert find_place("node0:29400", None, ("2", "0", None), dict(environ)).address == "node0:29400"


SLURM = {"SLURM_NNODES": "4", "SLURM_NODEID": "3", "SLURM_NTASKS_PER_NODE": "8"}


def test_slurms_variables_stand_in_for_the_options() -> None:
    place = find_place("n0:1", None, (None, None, None), {**SLURM, VARIABLE: new_secret()})
    assert place[:3] == (4, 3, 8)


def test_options_win_over_slurms_variables() -> None:
    place = find_place("n0:1", None, ("2", "1", "2"), {**SLURM, VARIABLE: new_secret()})
    assert place[:3] == (2, 1, 2)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("1", "0", None), "at least 2"),
        (("2", "2", None), "counted from 0"),
        ((None, "0", None), "SLURM_NNODES"),
    ],
)
def test_a_place_that_can_not_be_is_refused_before_anything_starts(
    given: tuple[str | None, str | None, str | None], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        find_place("1", None, given, {VARIABLE: new_secret()})


def test_a_secret_of_another_users_is_refused(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give files away")
    path = tmp_path / "run.key"
    write_secret(path)
    os.chown(path, 12345, -1)
    with pytest.raises(UsageError, match="belongs to another user"):
        find_secret(path, {})
