"""How each kind of strike is done: to real processes, files, limits and sockets, nothing of TraceML's."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plan import Hit
    from run import Run

_GROUPS = (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup"))
_OOM_LIMIT = 200 << 20  # above what a tiny training takes beyond what was charged elsewhere
_HOUR_S = 3600


def strike(run: Run, hit: Hit, target: str) -> None:
    """Do it; whoever is gone already was not struck."""
    with contextlib.suppress(ProcessLookupError):
        if hit.kind in {"KILL", "TERM", "INT", "HUP", "SEGV"}:
            os.kill(run.pid_of(target), getattr(signal, f"SIG{hit.kind}"))
        else:
            _KINDS[hit.kind](run, hit, target)


def _memory(run: Run, hit: Hit, target: str) -> None:
    """Allow no more address space than is in use."""
    pid = run.pid_of(target)
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    resource.prlimit(pid, resource.RLIMIT_AS, (pages * os.sysconf("SC_PAGE_SIZE"), -1))


def _oom(run: Run, hit: Hit, target: str) -> None:
    """Put it into a control group with little memory, and let it ask for much."""
    parent = oom_parent()
    assert parent is not None
    group = parent / f"faults-{os.getpid()}-{run.case.number}"
    group.mkdir(exist_ok=True)
    run.groups.append(group)
    name = "memory.limit_in_bytes" if (group / "memory.limit_in_bytes").exists() else "memory.max"
    (group / name).write_text(str(_OOM_LIMIT))
    (group / "cgroup.procs").write_text(str(run.pid_of(target)))
    (run.folder / "eat").touch()


def oom_parent() -> Path | None:
    """Return the control group in which one with a memory limit can be made, if there is one."""
    for parent in _GROUPS:
        group = parent / f"faults-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        limited = any((group / name).exists() for name in ("memory.limit_in_bytes", "memory.max"))
        group.rmdir()
        if limited:
            return parent
    return None


def _fill(folder: Path) -> None:
    """Leave no byte free."""
    with contextlib.suppress(OSError), (folder / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))
    with contextlib.suppress(OSError), (folder / "filler").open("ab", buffering=0) as file:
        while True:
            file.write(b"x")


def _disk(run: Run, hit: Hit, target: str) -> None:
    _fill(run.inside(run.logs))


def _disk_and_tmp(run: Run, hit: Hit, target: str) -> None:
    _fill(run.inside(run.logs))
    _fill(run.inside(run.tmp))


def _fsize(run: Run, hit: Hit, target: str) -> None:
    """Every write of more than a kilobyte fails from now on, wherever it goes."""
    if run.traced:
        resource.prlimit(run.pid_of("launcher"), resource.RLIMIT_FSIZE, (1024, 1024))


def _folder(run: Run, hit: Hit, target: str) -> None:
    for folder in run.run_folders():
        shutil.rmtree(folder, ignore_errors=True)


def _logs(run: Run, hit: Hit, target: str) -> None:
    """Remove what lies in the logs folder; itself it is a mount point here."""
    for entry in _entries(run.inside(run.logs)):
        shutil.rmtree(entry, ignore_errors=True)


def _spool(run: Run, hit: Hit, target: str) -> None:
    for place in (run.inside(Path("/dev/shm")), run.inside(run.tmp)):
        for entry in _entries(place):
            if entry.name.startswith("traceml-spool-"):
                shutil.rmtree(entry, ignore_errors=True)


def _shm(run: Run, hit: Hit, target: str) -> None:
    _fill(run.inside(Path("/dev/shm")))


def _nothing(run: Run, hit: Hit, target: str) -> None:
    """It was so from the start."""


def _clock(run: Run, hit: Hit, target: str) -> None:
    """Step the wall clock: a day back, then an hour ahead, or the other way round."""
    first, then = (-24, 1) if hit.step % 2 else (1, -24)
    for hours in (first, then):
        (run.folder / "clock").open("r+b").write(struct.pack("q", hours * _HOUR_S))
        time.sleep(0.1)


def _stop(run: Run, hit: Hit, target: str) -> None:
    if not run.traced:
        return
    pid = run.pid_of(target)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(hit.long_s)
    run.resumed_ns = time.monotonic_ns()
    os.kill(pid, signal.SIGCONT)


def _cut(run: Run, hit: Hit, target: str) -> None:
    if run.proxy is not None:
        run.proxy.cut(hit.long_s)


def _entries(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from list(folder.iterdir())


_KINDS = {
    "memory": _memory,
    "oom": _oom,
    "disk": _disk,
    "disk+tmp": _disk_and_tmp,
    "fsize": _fsize,
    "folder": _folder,
    "logs": _logs,
    "spool": _spool,
    "shm": _shm,
    "no shm": _nothing,
    "clock": _clock,
    "stop": _stop,
    "cut": _cut,
}


def compiled_clock(folder: Path) -> Path | None:
    """Compile what steps a run's clock; ``None`` without a compiler."""
    library = folder / "step_clock.so"
    source = Path(__file__).with_name("step_clock.c")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(source)]
    return library if subprocess.run(command, check=False, capture_output=True).returncode == 0 else None
