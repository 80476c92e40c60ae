"""Makes each part of TraceML fail in turn, in forked processes, while something is trained."""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from traceml_ai.probe import session as sessions

# What errors are told to, or what is only reached by way of it.
_GUARDS = {"fail", "turn_off", "warn", "finish", "enter_safely", "leave_safely"}
LATE = 25
"""A part that fails late does from this call on: by then an ordinary step is only noted as time stamps."""
# They are needed to end in order as well, which is then said in a second line.
_TWO_LINES = {"Session._refresh_facts", "StepLogWriter.put", "Facts.write"}


def _boom(*_args: Any, **_kwargs: Any) -> None:
    raise RuntimeError("injected")


def _from_call(first: int, inner: Callable[..., Any]) -> Callable[..., Any]:
    """``inner``, which fails from its ``first`` call on."""
    calls = 0

    @functools.wraps(inner)
    def spoiled(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        return inner(*args, **kwargs) if calls < first else _boom()

    return spoiled


def _spoil(owner: type, name: str, first: int) -> None:
    """Make a method fail: what a guard guards, where it is guarded; else the method itself."""
    method = vars(owner)[name]
    guarded = getattr(method, "__wrapped__", None)
    if guarded is None:
        setattr(owner, name, _from_call(first, method))
        return
    for cell in method.__closure__:
        if cell.cell_contents is guarded:
            cell.cell_contents = _from_call(first, guarded)


def _guards_itself(method: Any) -> bool:
    """Whether a method hands its own errors to ``fail``."""
    code = getattr(method, "__code__", None)
    return code is not None and "fail" in code.co_names and not hasattr(method, "__wrapped__")


def places(owners: Iterable[type]) -> dict[str, tuple[type, str]]:
    """Name and owner of every method of some classes."""
    found = {}
    for owner in owners:
        for kind in owner.__mro__[:-1]:
            for name, value in vars(kind).items():
                ours = callable(value) and not name.startswith("__") and name not in _GUARDS
                if ours and not _guards_itself(value):
                    found[f"{owner.__name__}.{name}"] = (kind, name)
    return found


def _child(folder: Path, name: str, before: Callable[[], None], training: Callable[[], object]) -> None:
    with (folder / f"{name}.stderr").open("w") as file:
        os.dup2(file.fileno(), 2)
    before()
    out: object
    try:
        out = training()
    except BaseException as error:  # noqa: BLE001 - what the test is about
        out = repr(error)
    atexit._run_exitfuncs()
    sys.stderr.flush()
    (folder / f"{name}.out").write_text(json.dumps(out))
    session = sessions.current
    assert session is not None
    (folder / f"{name}.warnings").write_text(json.dumps(session.facts.values["warnings"]))
    os._exit(0)


def main(training: Callable[[], object], owners: Iterable[type]) -> None:
    """Run ``training`` once with every method of ``owners`` failing; the result goes to ``argv[1]``."""
    result = Path(sys.argv[1])
    gc.collect()
    gc.freeze()  # a hundred children need not look through torch's own objects
    spoils: dict[str, Callable[[], None]] = {"nothing": lambda: None}
    for name, (owner, attribute) in places(owners).items():
        for first in (1, LATE):
            spoils[f"{name} from {first}"] = functools.partial(_spoil, owner, attribute, first)
    found = {}
    for name, before in spoils.items():
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            _child(result.parent, name, before, training)
        os.waitpid(pid, 0)
        found[name] = {
            "out": _json(result.parent / f"{name}.out"),
            "warnings": _json(result.parent / f"{name}.warnings"),
            "stderr": (result.parent / f"{name}.stderr").read_text(),
        }
    result.write_text(json.dumps(found))


def _json(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None


def assert_no_harm(found: dict[str, Any], reached: int) -> None:
    """The training made the same numbers whatever failed, and at least ``reached`` failures were told."""
    whole = found.pop("nothing")
    assert (whole["stderr"], whole["warnings"]) == ("", [])
    assert isinstance(whole["out"], list)
    different = {name: result["out"] for name, result in found.items() if result["out"] != whole["out"]}
    assert different == {}
    for name, result in found.items():
        lines = result["stderr"].splitlines()
        assert len(lines) <= 1 + (name.partition(" ")[0] in _TWO_LINES), (name, lines)
        assert len(set(lines)) == len(lines), (name, lines)
        assert all(line.startswith("traceml: ") for line in lines), (name, lines)
        if "measuring stopped" in result["stderr"]:
            assert "injected" in result["warnings"][-1]["message"], name
    assert sum(bool(result["warnings"]) for result in found.values()) >= reached
