"""The run folder: ``<logs>/<run-name>`` with its manifest ``run.json``. Standard library only.

The manifest is written before training starts and says where the step log lies, so that the
summary can be rebuilt when the collector did not live to write it.
"""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from traceml_ai.errors import TraceMLError, UsageError
from traceml_ai.spool.atomic import write_atomic

MANIFEST_FILE = "run.json"
SUMMARY_FILE = "final_summary.json"
TEXT_FILE = "final_summary.txt"
MANIFEST_VERSION = 1

_LONGEST_NAME = 100
_LONGEST_STEM = 40
_SUFFIX_LETTERS = "abcdefghjkmnpqrstuvwxyz234567890"  # 32, so that a byte picks evenly
_ATTEMPTS = 20


class Manifest(NamedTuple):
    """What ``run.json`` says about a launch.

    ``start_ns`` is the host clock's ``perf_counter_ns`` just before the training process was
    created; it means nothing after a reboot, and neither does the step log.
    """

    name: str
    traceml_version: str
    command: list[str]
    cwd: str
    spool: str | None  # None: nothing can be recorded
    started_at: str  # ISO 8601, UTC
    start_ns: int
    interval_s: float
    hostname: str
    uid: int | None
    launcher_pid: int
    launcher_birth: str | None  # what tells a recycled process id apart, see `birth_of`
    child_pid: int | None = None  # None: not started yet
    child_birth: str | None = None
    machine: dict[str, Any] | None = None  # the fields of MachineFacts
    manifest_version: int = MANIFEST_VERSION

    def write(self, folder: Path) -> None:
        """Write ``run.json``.

        Raises:
            OSError: The folder can't be written to.
        """
        text = json.dumps(self._asdict(), indent=2, allow_nan=False)
        write_atomic(folder / MANIFEST_FILE, (text + "\n").encode())


def read_manifest(folder: Path) -> Manifest:
    """Read ``run.json`` of a run folder.

    Raises:
        TraceMLError: There is none, or it is damaged.
    """
    path = folder / MANIFEST_FILE
    try:
        fields = json.loads(path.read_bytes())
    except OSError as error:
        raise TraceMLError(f"can't read {path} ({error.strerror}): name a run folder") from None
    except (ValueError, RecursionError):
        raise TraceMLError(f"{path} is not JSON: it is damaged, or another program's") from None
    if not isinstance(fields, dict) or fields.get("manifest_version") != MANIFEST_VERSION:
        raise TraceMLError(f"{path} is not a run manifest that this version of traceml reads")
    try:
        return Manifest(**{key: value for key, value in fields.items() if key in Manifest._fields})
    except TypeError:
        raise TraceMLError(f"{path} lacks fields that every run manifest has: it is damaged") from None


def birth_of(pid: int, *, proc: Path = Path("/proc")) -> str | None:
    """Return what tells a process from a later one with the same id: its start time and the boot.

    Returns:
        ``<clock ticks since boot>@<boot id>``, or ``None`` where ``/proc`` does not give them or the
        process is gone (a zombie is gone).
    """
    try:
        fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
        boot = (proc / "sys/kernel/random/boot_id").read_text().strip()
    except (OSError, ValueError):
        return None
    return None if not fields or fields[0] in {"Z", "X"} else f"{fields[19]}@{boot}"


def is_alive(pid: int | None, birth: str | None, *, proc: Path = Path("/proc")) -> bool:
    """Whether the process of a manifest still runs; False where that can't be known."""
    return pid is not None and birth is not None and birth_of(pid, proc=proc) == birth


def check_name(name: str) -> None:
    """Refuse a run name that is no plain folder name.

    Raises:
        UsageError: It is empty, too long, hidden, or holds a path separator or control character.
    """
    plain = name.isprintable() and not any(letter in name for letter in "/\\")
    if not (plain and 0 < len(name) <= _LONGEST_NAME) or name.startswith("."):
        raise UsageError(f"--run-name {name!r} can't be a folder name: use letters, digits, - and _")


def create_named(logs: Path, name: str) -> Path:
    """Create the folder of a run whose name the user chose.

    Raises:
        UsageError: The name is taken, or no folder name.
        OSError: The logs folder can't be made or written to.
    """
    check_name(name)
    logs.mkdir(parents=True, exist_ok=True)
    folder = logs / name
    try:
        folder.mkdir()
    except FileExistsError:
        raise UsageError(f"run name {name!r} is taken ({folder} exists): choose another --run-name") from None
    return folder


def create_unnamed(logs: Path, stem: str, now: datetime) -> Path:
    """Create the folder of a run under a readable name of our own: ``train-20260131-142501-k3f``.

    Args:
        logs: Where run folders are kept; made when absent.
        stem: What the run is called after: the script's or module's name.
        now: Local time of the start.

    Raises:
        OSError: The logs folder can't be made or written to.
    """
    logs.mkdir(parents=True, exist_ok=True)
    for _ in range(_ATTEMPTS):
        folder = logs / unique_name(stem, now)
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise FileExistsError(f"no free run name in {logs}")


def unique_name(stem: str, now: datetime) -> str:
    """Return a name for a run: stem, date and time, and three letters against collisions."""
    plain = "".join(letter if letter.isalnum() or letter in "_-." else "-" for letter in stem)
    plain = plain[:_LONGEST_STEM].strip("-.") or "run"
    suffix = "".join(_SUFFIX_LETTERS[byte % len(_SUFFIX_LETTERS)] for byte in os.urandom(3))
    return f"{plain}-{now:%Y%m%d-%H%M%S}-{suffix}"
