"""What a strike came to, held against the untraced run that was struck alike."""

from __future__ import annotations

import json
import re
import signal
from typing import Any, NamedTuple

from plan import Case
from record import Process

COUNTED = ("harmed", "missing", "invalid", "left")
_STATUS = {"INT": "interrupted", "QUIT": "interrupted", "TERM": "terminated", "HUP": "terminated"}
_END_OF_LAUNCHER = {"KILL", "SEGV"}


class Seen(NamedTuple):
    """What can be seen of a run when it is over.

    Attributes:
        codes: Exit codes of what was started; -n after signal n.
        processes: What its training processes wrote.
        stdout: What it printed.
        stderr: The same.
        struck_ns: When the strikes were.
        summaries: Text of each final summary, by the run folder's name.
        viewed: Whether ``traceml view`` had to make them.
        took_s: From the end of the training until the summary was there.
        left: What was there five seconds later.
    """

    codes: list[int] | None
    processes: dict[str, Process]
    stdout: str
    stderr: str
    struck_ns: list[int]
    summaries: dict[str, str]
    viewed: bool
    took_s: float
    left: dict[str, list[str]]


def judge(case: Case, traced: Seen, references: list[Seen]) -> dict[str, list[str]]:
    """Return what was wrong, by what is counted."""
    return {
        "harmed": _harmed(case, traced, references),
        "missing": _missing(case, traced),
        "invalid": _invalid(case, traced),
        "left": _left(traced, references),
    }


def launcher_dies(case: Case) -> bool:
    """Whether the strike ends TraceML's own process, whatever it does."""
    return any(hit.kind in _END_OF_LAUNCHER and hit.target in {"launcher", "node1"} for hit in case.hits)


def _harmed(case: Case, traced: Seen, references: list[Seen]) -> list[str]:
    found = []
    allowed = [reference.codes for reference in references] + _at_the_end(case)
    if traced.codes is None:
        found.append("it did not end")
    elif not launcher_dies(case) and traced.codes not in allowed:
        found.append(f"exit code {traced.codes}, untraced {allowed}")
    ends = [_ends(reference) for reference in references]
    if _ends(traced) not in ends:
        found.append(f"children ended {_ends(traced)}, untraced {ends}")
    for name in sorted({name for reference in references for name in reference.processes}):
        found += _harmed_process(name, traced, [r.processes[name] for r in references if name in r.processes])
    return found


def _at_the_end(case: Case) -> list[list[int]]:
    """A signal that comes as the program ends finds it, or does not."""
    hit = case.hits[0]
    if hit.when != "end" or hit.kind not in {"TERM", "INT", "HUP"}:
        return []
    return [[0], [-int(getattr(signal, f"SIG{hit.kind}"))]]


def _ends(seen: Seen) -> dict[str, int]:
    return seen.processes["main"].ended if "main" in seen.processes else {}


def _harmed_process(name: str, traced: Seen, references: list[Process]) -> list[str]:
    mine = traced.processes.get(name)
    went_on = all(reference.done for reference in references)
    if mine is None:
        return [f"process {name} did not begin"] if went_on else []
    found = []
    if went_on and not mine.done:
        found.append(f"process {name} stopped after step {len(mine.steps)}, untraced it went on")
    losses = [[loss for _, loss, _ in reference.steps] for reference in references]
    longest = max(losses, key=len)
    own = [loss for _, loss, _ in mine.steps][: len(longest)]
    if own != longest[: len(own)]:
        found.append(f"process {name} has other losses than untraced")
    return found


def _missing(case: Case, traced: Seen) -> list[str]:
    rows = _rows(traced)
    until = _measured_until(case, traced)
    found = []
    for name, process in traced.processes.items():
        closed = sum(when <= until for _, _, when in process.steps)
        kept = rows.get(process.pid, 0)
        if kept < closed:
            found.append(f"process {name}: {kept} steps in the summary, {closed} closed")
    return found


def _measured_until(case: Case, traced: Seen) -> float:
    """What trains on when torchrun's agent is gone outlives the command that was to be measured."""
    hit = case.hits[0]
    if hit.target == "agent" and traced.struck_ns:
        return traced.struck_ns[0]
    return float("inf")


def _rows(traced: Seen) -> dict[int, int]:
    """Return the steps of each process, over all summaries: on a node's own and on the owner's, the more."""
    rows: dict[int, int] = {}
    for text in traced.summaries.values():
        for row in (_parsed(text) or {}).get("step_time", {}).get("ranks", []):
            rows[row["pid"]] = max(rows.get(row["pid"], 0), row["steps"])
    return rows


def _invalid(case: Case, traced: Seen) -> list[str]:
    began = any(process.steps for process in traced.processes.values())
    if not traced.summaries:
        return ["there is no summary"] if began else []
    found = []
    if traced.viewed and not _may_need_view(case):
        found.append("only traceml view makes the summary")
    for name, text in traced.summaries.items():
        summary = _parsed(text)
        if summary is None:
            found.append(f"the summary of {name} is not valid: {text[:80]!r}")
            continue
        if summary["run"]["status"] == "running":
            found.append(f"the summary of {name} says that it still runs")
        if name == "one" or len(traced.summaries) == 1:
            found += _wrong_end(traced, summary["run"])
        found += _wrong_counts(traced, summary)
    return found


def _may_need_view(case: Case) -> bool:
    """Whether the strike keeps TraceML's own process from writing anything."""
    return any(
        hit.kind in {"KILL", "SEGV", "memory", "fsize"} and hit.target in {"launcher", "node1"}
        for hit in case.hits
    )


def _wrong_end(traced: Seen, run: dict[str, Any]) -> list[str]:
    """Compare what the summary says of the end with how it ended."""
    code = traced.codes[0] if traced.codes else None
    if traced.viewed or code is None:
        return []
    said = (run["status"], run["exit_code"])
    true = (_status(code), code if code >= 0 else 128 - code)
    return [] if said == true else [f"the summary says {said}, it was {true}"]


def _status(code: int) -> str:
    if code == 0:
        return "completed"
    name = signal.Signals(-code if code < 0 else code - 128).name[3:] if code < 0 or code > 128 else ""
    killed = code < 0 or name in {"KILL", "SEGV", "ABRT", "BUS"}
    return _STATUS.get(name, "killed" if killed else "failed")


def _wrong_counts(traced: Seen, summary: dict[str, Any]) -> list[str]:
    """More steps than the training made, the one under way apart."""
    made = {process.pid: len(process.steps) for process in traced.processes.values()}
    return [
        f"process {row['pid']}: {row['steps']} steps in the summary, {made.get(row['pid'], 0)} made"
        for row in summary["step_time"]["ranks"]
        if row["steps"] > made.get(row["pid"], 0) + 1
    ]


def _parsed(text: str) -> dict[str, Any] | None:
    from traceml_ai.errors import TraceMLError
    from traceml_ai.schema.summary import decode

    try:
        decode(text.encode())
        found = json.loads(text, parse_constant=_refuse)
    except (TraceMLError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def is_final(text: str) -> bool:
    """Whether a summary's text is one, of a run that is over."""
    summary = _parsed(text)
    return summary is not None and summary["run"]["status"] != "running"


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _left(traced: Seen, references: list[Seen]) -> list[str]:
    """Return what was left behind that the untraced program does not leave."""
    found = []
    moved = bool(traced.summaries) and "the run's files go to" in traced.stderr
    moved = moved or ": recording to " in traced.stderr
    for place, names in traced.left.items():
        known = {_kind(name) for reference in references for name in reference.left[place]}
        for name in names:
            is_run = place in {"tmp", "memory"} and moved and re.fullmatch(r"traceml-[a-z0-9_]{8}", name)
            if _kind(name) not in known and not is_run:
                found.append(f"{place}: {name}")
    return found


def _kind(name: str) -> str:
    """A name without its numbers and random letters."""
    return re.sub(r"(?<=[-_])[a-z0-9_]{8}$|(?<=^tmp)[a-z0-9_]{8}$|[0-9a-f]{6,}|[0-9]+", "N", name)
