"""The parts of the view: each a few lines of text from a snapshot, for a given width."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from traceml_ai.live.snapshot import Now, RankNow, Snapshot
from traceml_ai.live.terminal.look import Look, column_chart, fold, heat, place, spark
from traceml_ai.report.text import NOT_AVAILABLE, clean, duration, fit, millis, number, size, steps_of, wrap
from traceml_ai.report.words import KIND_WORDS, PHASE_WORDS, QUIET_KINDS
from traceml_ai.schema.summary import Finding, Summary

PHASE_COLORS = {
    "input_wait": "yellow",
    "h2d": "cyan",
    "forward": "green",
    "backward": "blue",
    "optimizer": "magenta",
    "residual": "bright_black",
}
SEVERITY_COLORS = {"critical": "bold red", "warning": "bold yellow", "info": "bold green"}
_LABEL = 13
_FIGURE = 9
_SHARE = 7
_QUIET = "dim"


def head(snapshot: Snapshot | None, look: Look, *, name: str, remark: str = "") -> Text:
    """What runs, in one line."""
    if snapshot is None:
        return Text(f"TraceML {look.dot} {clean(name)} {look.dot} waiting for the first figures")
    run = snapshot.summary.run if snapshot.summary else None
    now = snapshot.now
    steps = now.steps if now else (run.steps if run else 0)
    elapsed = now.elapsed_s if now else (run.duration_s if run else None)
    parts = ["TraceML", snapshot.name, snapshot.status, steps_of(steps), duration(elapsed)]
    if run and run.devices:
        parts.append(", ".join(run.devices))
    if now and len(now.ranks) > 1:
        parts.append(f"{len(now.ranks):,} ranks")
    text = Text(f" {look.dot} ".join(clean(part, ascii_only=not look.unicode) for part in parts))
    if remark:
        text.append(f" {look.dot} {remark}", "bold yellow")
    return text


def verdict(summary: Summary | None, width: int, look: Look, *, sentence: int = 2) -> list[Text]:
    """The primary finding: what, why, and what to do next."""
    if summary is None:
        return [Text("The first verdict comes a second after the first steps.", _QUIET)]
    finding = summary.diagnosis
    lines = [Text(fit(headline(finding), width), SEVERITY_COLORS[finding.severity])]
    for label, said in (("Why", finding.why), ("Next", finding.next)):
        body = wrap(clean(said, ascii_only=not look.unicode), width - 7, sentence)
        lines += [Text(f"  {label if at == 0 else '':<5}{line}") for at, line in enumerate(body)]
    return lines


def headline(finding: Finding) -> str:
    """A finding in one line."""
    words = KIND_WORDS.get(finding.kind)
    return f"{finding.kind} ({finding.severity})" + (f" {words}" if words else "")


def breakdown(snapshot: Snapshot | None, width: int, look: Look) -> list[Text]:
    """The step as bars: over the last seconds, with the share over the whole run beside it."""
    now = snapshot.now if snapshot else None
    summary = snapshot.summary if snapshot else None
    phases = _phases(now, summary)
    if not phases:
        return [Text("No step was seen yet.", _QUIET)]
    recent = now is not None and now.window_steps > 0
    whole = _step_ms(now, summary)
    lines = [_rates(now, summary, width, look)]
    bar_width = max(8, width - _LABEL - _FIGURE - 2 * _SHARE - 4)
    for name, ms in phases.items():
        share = None if ms is None or not whole else ms / whole
        line = Text(f"  {_label(name):<{_LABEL}}")
        bar = look.bar(share, bar_width)
        filled = bar.rstrip(look.empty)
        line.append(filled, PHASE_COLORS.get(name, "white"))
        line.append(bar[len(filled) :], _QUIET)
        line.append(f"{number(ms):>{_FIGURE}}{_pct(share):>{_SHARE}}")
        line.append(f"{_pct(_run_share(summary, name)):>{_SHARE}}" if recent else "", _QUIET)
        lines.append(line)
    title = f"  {'':<{_LABEL}}{'':<{bar_width}}{'ms':>{_FIGURE}}{'share':>{_SHARE}}"
    lines.insert(1, Text(title + (f"{'run':>{_SHARE}}" if recent else ""), _QUIET))
    return lines


def _phases(now: Now | None, summary: Summary | None) -> dict[str, float | None]:
    if now is not None and now.window_steps > 0:
        phases = dict(now.phases_ms)
    elif summary is not None and summary.step_time.steps:
        phases = {
            name: stats.mean_ms for name, stats in summary.step_time.phases.items() if name != "between_steps"
        }
    else:
        return {}
    if phases.get("h2d") is None:
        phases.pop("h2d", None)  # there is no device to copy to
    return phases


def _step_ms(now: Now | None, summary: Summary | None) -> float | None:
    if now is not None and now.window_steps > 0:
        return now.step_ms
    return summary.step_time.step_ms if summary else None


def _rates(now: Now | None, summary: Summary | None, width: int, look: Look) -> Text:
    step = millis(_step_ms(now, summary))
    if now is None or not now.window_steps:
        return Text(fit(f"Step {step} over the whole run", width))
    parts = [f"Last {steps_of(now.window_steps)}: {step} a step"]
    if now.between_ms is not None:
        parts.append(f"{millis(now.between_ms)} between")
    if now.samples_per_sec is not None:
        parts.append(f"{number(now.samples_per_sec)} samples/s")
    if now.steps_per_sec is not None:
        parts.append(f"{number(now.steps_per_sec)} steps/s")
    return Text(fit(f" {look.dot} ".join(parts), width))


def _run_share(summary: Summary | None, name: str) -> float | None:
    stats = summary.step_time.phases.get(name) if summary else None
    return None if stats is None or stats.share_pct is None else stats.share_pct / 100


def _label(name: str) -> str:
    return fit(PHASE_WORDS.get(name, name), _LABEL - 1)


def _pct(share: float | None) -> str:
    return NOT_AVAILABLE if share is None else f"{100 * share:.1f}%"


def curve(snapshot: Snapshot | None, width: int, look: Look, *, height: int = 1) -> list[Text]:
    """Step time over the whole run, with marks where findings begin."""
    first, values = _curve_of(snapshot)
    if not values:
        return []
    known = [value for value in values if value is not None]
    label = f"Step time, whole run, up to {millis(max(known))}" if known else "Step time"
    rows = column_chart(values, width, height, look) if height > 1 else [spark(values, width, look)]
    lines = [Text(fit(label, width)), *(Text(row, "green") for row in rows)]
    marks = _marks(snapshot, first, width, look)
    return [*lines, marks] if marks is not None else lines


def _curve_of(snapshot: Snapshot | None) -> tuple[list[int], list[float | None]]:
    if snapshot is None:
        return [], []
    if snapshot.now is not None:
        return snapshot.now.curve.first_step, list(snapshot.now.curve.mean_ms)
    series = snapshot.summary.step_time.series if snapshot.summary else None
    return (series.first_step, list(series.mean_ms)) if series else ([], [])


def marked_findings(summary: Summary | None) -> list[tuple[int, Finding]]:
    """Return the findings that begin somewhere, by their first step."""
    found = [(f.scope.first_step, f) for f in (summary.findings if summary else [])]
    return sorted(((at, f) for at, f in found if at is not None), key=lambda each: each[0])


def _marks(snapshot: Snapshot | None, first: Sequence[int], width: int, look: Look) -> Text | None:
    found = marked_findings(snapshot.summary if snapshot else None)
    if not found or not first:
        return None
    columns = " " * width
    for step, finding in found:
        index = max((at for at, begin in enumerate(first) if begin <= step), default=0)
        column = place(index, len(first), width)
        said = f"{look.mark} {finding.kind} from step {step:,}"
        start = column if column + len(said) <= width else max(0, column - len(said) + 1)
        if column + len(said) > width:  # the words stand before the mark
            said = f"{finding.kind} from step {step:,} {look.mark}"
        if columns[start : start + len(said)].strip():
            said, start = look.mark, column
        columns = columns[:start] + said + columns[start + len(said) :]
    return Text(columns[:width].rstrip(), "bold yellow")


def ranks(snapshot: Snapshot | None, width: int, look: Look) -> list[Text]:
    """All ranks as one heat row; nothing for a single one.

    Ranks that wait for one another take equally long: what tells them apart is their own work, where
    the collector could tell it from waiting.
    """
    rows = rank_rows(snapshot)
    if len(rows) < 2:  # noqa: PLR2004 -- one rank differs from nobody
        return []
    values, what = heat_values(snapshot, rows)
    said = f"Ranks 0 to {len(rows) - 1:,} by {what}"
    per_cell = -(-len(rows) // width)
    said += f", {per_cell} a cell (the slowest of them)" if per_cell > 1 else ""
    known = sorted(value for value in values if value is not None)
    if known:
        slowest = rows[values.index(known[-1])]
        said += (
            f", slowest {slowest.rank}: {millis(known[-1])}, median {millis(known[(len(known) - 1) // 2])}"
        )
    return [Text(fit(said, width)), heat_row(values, width, look)]


def heat_values(snapshot: Snapshot | None, rows: Sequence[RankNow]) -> tuple[list[float | None], str]:
    """Return what the ranks are compared by, and what it is called."""
    work = work_by_rank(snapshot)
    if work and all(row.rank in work for row in rows):
        return [work[row.rank] for row in rows], "own work"
    return [row.step_ms for row in rows], "step time"


def work_by_rank(snapshot: Snapshot | None) -> dict[int | None, float]:
    """Return each rank's own work in ms a step over the run, where it is known."""
    summary = snapshot.summary if snapshot else None
    found = summary.step_time.ranks if summary else []
    return {row.rank: row.work_ms for row in found if row.work_ms is not None}


def heat_row(values: Sequence[float | None], width: int, look: Look) -> Text:
    """Draw one row of a heat map."""
    text = Text()
    for character, warmth in heat(values, width, look):
        text.append(character, heat_color(warmth))
    return text


def heat_color(warmth: float | None) -> str:
    """Return the colour of a warmth of 0 to 1."""
    if warmth is None:
        return "dim"
    limits = ((0.1, "green"), (0.35, "yellow"), (0.7, "rgb(255,135,0)"))
    return next((color for most, color in limits if warmth <= most), "red")


def rank_rows(snapshot: Snapshot | None) -> list[RankNow]:
    """Return the ranks of a snapshot: of the last seconds, else of the whole run."""
    if snapshot is None:
        return []
    if snapshot.now is not None:
        return snapshot.now.ranks
    rows = snapshot.summary.step_time.ranks if snapshot.summary else []
    return [
        RankNow(
            rank=row.rank, pid=row.pid, steps=row.steps, step_ms=row.step_ms, input_wait_ms=row.input_wait_ms
        )
        for row in rows
    ]


def memory_line(snapshot: Snapshot | None, width: int, look: Look) -> Text:
    """Memory of host and device in one line."""
    main, workers, device = memory_figures(snapshot)
    parts = [
        f"main process {size(main)}",
        "no workers" if workers is None else f"workers {size(workers)}",
        f"device {size(device)}",
    ]
    return Text(fit("Memory " + f" {look.dot} ".join(parts), width))


def memory_figures(snapshot: Snapshot | None) -> tuple[int | None, int | None, int | None]:
    """Return bytes of the main processes, of the workers, and the device's peak."""
    if snapshot is None:
        return None, None, None
    if snapshot.now is not None:
        memory = snapshot.now.memory
        main = memory.main_rss_bytes[-1] if memory.main_rss_bytes else None
        workers = [value for value in memory.workers_pss_bytes if value is not None]
        return main, workers[-1] if workers else None, memory.peak_allocated_bytes
    if snapshot.summary is None:
        return None, None, None
    process = snapshot.summary.process
    return (
        process.main_rss_bytes,
        process.workers_pss_bytes,
        snapshot.summary.step_memory.peak_allocated_bytes,
    )


def system_line(snapshot: Snapshot | None, width: int, look: Look) -> Text:
    """Processors and the host in one line."""
    now = snapshot.now if snapshot else None
    if now is None:
        summary = snapshot.summary if snapshot else None
        cpu = summary.system.cpu_pct if summary else None
        return Text(fit(f"System host {_whole_pct(cpu)} busy over the run", width))
    machine = now.machine
    parts = [
        f"{number(machine.busy_cores, 2)} of {_cpus(machine.usable_cpus)} usable CPUs busy",
        f"host {_whole_pct(machine.host_cpu_pct)}",
        f"{size(machine.host_used_bytes)} of {size(machine.host_total_bytes)}",
    ]
    return Text(fit("System " + f" {look.dot} ".join(parts), width))


def _whole_pct(value: float | None) -> str:
    return NOT_AVAILABLE if value is None else f"{value:.0f} %"


def _cpus(value: float | None) -> str:
    return NOT_AVAILABLE if value is None else f"{value:g}"


def others(summary: Summary | None, width: int, most: int, look: Look) -> list[Text]:
    """Further findings, each in one line."""
    found = [
        finding
        for finding in (summary.findings if summary else [])
        if summary is not None and finding != summary.diagnosis and finding.kind not in QUIET_KINDS
    ]
    lines = [f"Also {finding.kind} ({finding.severity}): {finding.why}" for finding in found[:most]]
    return [Text(fit(clean(line, ascii_only=not look.unicode), width)) for line in lines]


__all__ = ["breakdown", "curve", "fold", "head", "memory_line", "others", "ranks", "system_line", "verdict"]
