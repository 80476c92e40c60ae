"""What else changed: findings, throughput, memory, time between steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from traceml_ai.schema.compare import Figure, FindingChange
from traceml_ai.schema.summary import BetweenByCause, Finding, Summary, ThroughputSection

Side: TypeAlias = Sequence[Summary]
Reader: TypeAlias = Callable[[Summary], float | None]

# A figure beyond this (bytes, ms, a second) is a damaged file, and would overflow.
_TOO_MUCH = 1e18

# They say that nothing was found, which is no news.
_QUIET = frozenset({"BALANCED", "NORMAL", "NO_DATA"})


def _workers_bytes(summary: Summary) -> float | None:
    return 0 if summary.process.workers == 0 else summary.process.workers_pss_peak_bytes


def _host_bytes(summary: Summary) -> float | None:
    main, workers = summary.process.main_rss_peak_bytes, _workers_bytes(summary)
    return None if main is None or workers is None else main + workers


HOST, DEVICE = "host", "device allocated"
_MEMORY: dict[str, Reader] = {
    HOST: _host_bytes,  # main process and workers together
    "main process": lambda s: s.process.main_rss_peak_bytes,
    "loader workers": _workers_bytes,
    DEVICE: lambda s: s.step_memory.peak_allocated_bytes,
    "device reserved": lambda s: s.step_memory.peak_reserved_bytes,
}


def finding_changes(a: Side, b: Side) -> list[FindingChange]:
    """Return the findings that came, went, or changed their severity; of several runs most must agree."""
    before, after = _usual(a), _usual(b)
    found = []
    for key in dict.fromkeys([*after, *before]):
        old, new = before.get(key), after.get(key)
        if old is None or new is None or old.severity != new.severity:
            found.append(_finding_change(old, new))
    return found


def _finding_change(old: Finding | None, new: Finding | None) -> FindingChange:
    shown = new or old
    assert shown is not None
    kind: Literal["came", "went", "changed"] = "changed"
    if old is None or new is None:
        kind = "came" if old is None else "went"
    return FindingChange(
        kind=shown.kind,
        section=shown.section,
        change=kind,
        severity_a=old.severity if old else None,
        severity_b=new.severity if new else None,
        why=shown.why,
    )


def _usual(side: Side) -> dict[tuple[str, str], Finding]:
    """Return the findings that more than half of the runs have, each as the first of them tells it."""
    first: dict[tuple[str, str], Finding] = {}
    runs: Counter[tuple[str, str]] = Counter()
    for summary in side:
        runs.update({(finding.kind, finding.section) for finding in summary.findings})
        for finding in summary.findings:
            first.setdefault((finding.kind, finding.section), finding)
    return {
        key: finding
        for key, finding in first.items()
        if 2 * runs[key] > len(side) and finding.kind not in _QUIET
    }


def figure(name: str, unit: str, a: Side, b: Side, read: Reader) -> Figure:
    """Return a figure of both sides: means over the runs that have it; what no run can have is unknown."""
    before, after = _mean(a, read), _mean(b, read)
    return Figure(name=name, unit=unit, a=before, b=after, change_pct=_change_pct(before, after))


def _mean(side: Side, read: Reader) -> float | None:
    values = [value for summary in side if (value := read(summary)) is not None and 0 <= value < _TOO_MUCH]
    return sum(values) / len(values) if values else None


def _change_pct(before: float | None, after: float | None) -> float | None:
    return 100 * (after / before - 1) if before and after is not None else None


def throughput(a: Side, b: Side) -> list[Figure]:
    """Return the rates that at least one side has."""
    names = [name.removesuffix("_per_sec") for name in ThroughputSection.__struct_fields__]
    return _known([figure(name, "per_sec", a, b, _rate(name)) for name in names])


def _rate(name: str) -> Reader:
    return lambda summary: getattr(summary.throughput, f"{name}_per_sec")


def memory(a: Side, b: Side) -> list[Figure]:
    """Return peaks of host and device memory that at least one side has."""
    return _known([figure(name, "bytes", a, b, read) for name, read in _MEMORY.items()])


def between(a: Side, b: Side) -> list[Figure]:
    """Return time between steps by cause, averaged over all steps of a run."""
    names = [name.removesuffix("_s") for name in BetweenByCause.__struct_fields__]
    found = _known([figure(name, "ms", a, b, _cause(name)) for name in names])
    return [each for each in found if each.a or each.b]


def _cause(name: str) -> Reader:
    def read(summary: Summary) -> float | None:
        seconds = getattr(summary.time.between_by_cause, f"{name}_s")
        return None if seconds is None or not summary.run.steps else 1e3 * seconds / summary.run.steps

    return read


def _known(figures: list[Figure]) -> list[Figure]:
    return [each for each in figures if each.a is not None or each.b is not None]
