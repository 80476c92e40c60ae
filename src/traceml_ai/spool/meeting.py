"""Where a collector and a training process that know nothing of one another meet, on one machine.

A collector that waits leaves an offer in a folder that only this user can enter; a training process looks
there. No port, no thread, and nothing that another user could leave in the way: what is not private to
this user is not believed. Standard library only, imported in the training process by ``init()`` alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from traceml_ai.spool.atomic import write_atomic
from traceml_ai.spool.place import MEMORY
from traceml_ai.spool.runfolder import birth_of, is_alive

_OFFER_FILE = re.compile(r"(\d+)\.json")
_JOINED_FILE = re.compile(r"joined-(\d+)\.json")
_LARGEST = 64 << 10
_MOST_OFFERS = 256


class Offer(NamedTuple):
    """A collector that waits for training processes, or watches them."""

    pid: int
    birth: str | None
    spool: str
    folder: str | None  # the run folder
    cwd: str
    launchers: list[int]  # of a complete run: whose restarted processes are still let in
    full: bool = False


class Joined(NamedTuple):
    """A training process that found its collector by itself."""

    pid: int
    birth: str | None
    parent: int
    elastic: bool  # a launcher that may start it again is its parent
    rank: int | None
    command: list[str]
    age_s: float | None  # when it joined


class Choice(NamedTuple):
    """The collector to join, or why there is none."""

    offer: Offer | None
    why_not: str = ""


def meeting_folders(parents: Iterable[Path] | None = None) -> list[Path]:
    """Return where this user's offers may be, best first."""
    uid = os.getuid() if hasattr(os, "getuid") else "user"
    found = [MEMORY, Path(tempfile.gettempdir())] if parents is None else parents
    return [parent / f"traceml-meet-{uid}" for parent in found]


def is_private(folder: Path) -> bool:
    """Whether a folder is this user's own and nobody else can enter it; a link is none."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    if not stat.S_ISDIR(found.st_mode):
        return False
    return not hasattr(os, "getuid") or (found.st_uid == os.getuid() and not found.st_mode & 0o077)


class Meeting:
    """This collector's offer.

    Args:
        offer: What it offers.
        folders: Where it may be left.
    """

    def __init__(self, offer: Offer, folders: Iterable[Path] | None = None) -> None:
        self._offer = offer
        self._path: Path | None = None
        for folder in meeting_folders() if folders is None else folders:
            with contextlib.suppress(OSError):
                folder.mkdir(mode=0o700, exist_ok=True)
                if is_private(folder):
                    self._path = folder / f"{offer.pid}.json"
                    self._write()
                    return
            self._path = None

    @property
    def is_open(self) -> bool:
        """Whether the offer could be left anywhere."""
        return self._path is not None

    def complete(self, launchers: Iterable[int]) -> None:
        """Let in nobody else, except processes that these launchers start again."""
        offer = self._offer._replace(full=True, launchers=sorted(set(launchers)))
        if offer != self._offer:
            self._offer = offer
            with contextlib.suppress(OSError):
                self._write()

    def withdraw(self) -> None:
        """Take the offer back."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        if self._path is not None:
            write_atomic(self._path, json.dumps(self._offer._asdict()).encode())


def offers(folders: Iterable[Path] | None = None) -> list[Offer]:
    """Return the offers of collectors that live; what is damaged or nobody's is passed over."""
    found = []
    for folder in meeting_folders() if folders is None else folders:
        for path in _private_files(folder, _OFFER_FILE):
            offer = _read(path, Offer)
            if offer is not None and is_alive(offer.pid, offer.birth) and is_private(Path(offer.spool)):
                found.append(offer)
    return found


def choose(found: list[Offer], *, cwd: str, parent: int, restarted: bool) -> Choice:
    """Return the collector that a training process belongs to.

    Args:
        found: Those that live.
        cwd: Working directory of the training process: a collector waits for scripts started in its own.
        parent: Its parent process.
        restarted: Whether an elastic launcher started it again.
    """
    back = [offer for offer in found if offer.full and restarted and parent in offer.launchers]
    waiting = [offer for offer in found if not offer.full]
    here = [offer for offer in waiting if offer.cwd == cwd]
    for group in (back, here):
        if len(group) == 1:
            return Choice(group[0])
        if group:
            names = ", ".join(str(offer.folder) for offer in group)
            return Choice(
                None, f"several collectors wait ({names}): name one's run folder in TRACEML_RUN_DIR"
            )
    why = "no collector for this process"
    if waiting:
        other = waiting[0]
        why += f" (one waits for scripts started in {other.cwd}; TRACEML_RUN_DIR={other.folder} names it)"
    elif any(offer.cwd == cwd for offer in found):
        why += " (the one here has all the ranks it waited for)"
    return Choice(None, why)


def leave_word(spool: Path, joined: Joined) -> None:
    """Tell the collector that this process belongs to it.

    Raises:
        OSError: The spool folder can't be written to.
    """
    write_atomic(spool / f"joined-{joined.pid}.json", json.dumps(joined._asdict()).encode())


def read_joined(spool: Path) -> list[Joined]:
    """Return the processes that left word in a spool folder."""
    found = [_read(path, Joined) for path in _private_files(spool, _JOINED_FILE)]
    return [joined for joined in found if joined is not None]


def forget_joined(spool: Path, pid: int) -> None:
    """Remove the word a process left."""
    (spool / f"joined-{pid}.json").unlink(missing_ok=True)


def age_of_this_process() -> float | None:
    """Return how long this process lives, in seconds; ``None`` where the kernel does not tell.

    Source: proc_pid_stat(5), field 22, and proc_uptime(5).
    """
    birth = birth_of(os.getpid())
    if birth is None:
        return None
    try:
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        return max(0.0, uptime - int(birth.partition("@")[0]) / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError):
        return None


def _private_files(folder: Path, pattern: re.Pattern[str]) -> Iterator[Path]:
    if not is_private(folder):
        return
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return
    for name in [name for name in names if pattern.fullmatch(name)][:_MOST_OFFERS]:
        yield folder / name


def _read(path: Path, kind: type[Any]) -> Any:
    """Read a file of ours; ``None`` when it is gone, damaged, or holds values of other types."""
    try:
        with path.open("rb") as file:
            fields = json.loads(file.read(_LARGEST))
        value = kind(**fields)
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    return value if _has_right_types(value) else None


def _has_right_types(value: tuple[Any, ...]) -> bool:
    fields = value._asdict()  # type: ignore[attr-defined]
    if not all(isinstance(field, _TYPES[name]) for name, field in fields.items()):
        return False
    return _all(int, fields.get("launchers", [])) and _all(str, fields.get("command", []))


def _all(kind: type, values: list[object]) -> bool:
    return all(isinstance(each, kind) for each in values)


_NONE = type(None)
_TYPES: dict[str, tuple[type, ...]] = {
    "pid": (int,),
    "birth": (str, _NONE),
    "spool": (str,),
    "folder": (str, _NONE),
    "cwd": (str,),
    "launchers": (list,),
    "full": (bool,),
    "parent": (int,),
    "elastic": (bool,),
    "rank": (int, _NONE),
    "command": (list,),
    "age_s": (float, int, _NONE),
}
