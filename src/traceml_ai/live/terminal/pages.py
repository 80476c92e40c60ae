"""The tabs of the view, put together from the parts for a size."""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text

from traceml_ai.live.snapshot import Snapshot
from traceml_ai.live.terminal import panels
from traceml_ai.live.terminal.look import Look, column_chart
from traceml_ai.report.text import NOT_AVAILABLE, clean, fit, number, size, wrap
from traceml_ai.report.words import PHASE_WORDS
from traceml_ai.schema.summary import Summary

TABS = ("overview", "steps", "ranks", "memory", "log")
WIDE = 140
_GUTTER = 3

HELP = """\
1 to 5, Tab   overview, steps, ranks, memory, log
p             pause the view and go on (the training goes on all the time)
c             copy the card to the clipboard (where the terminal allows it)
q             close this view; the training goes on, its output in the terminal
Up Down PgUp PgDn Home End   scroll the output
/  n  N       search the output, next, previous
i or Enter    type to the program; Ctrl-] or F2 ends it
Ctrl-C        what it always means: interrupts the training; again: ends it
Ctrl-Z        closes the view and stops the training, fg goes on
?             this help"""

HELP_ATTACHED = """\
1 to 5, Tab   overview, steps, ranks, memory, log
p             pause the view and go on (the training goes on all the time)
c             copy the card to the clipboard (where the terminal allows it)
q, Ctrl-C     close this view; the training is not touched
Up Down PgUp PgDn Home End   scroll the output
/  n  N       search the output, next, previous
?             this help"""


def overview(snapshot: Snapshot | None, width: int, height: int, look: Look) -> list[Text]:
    """The verdict and all there is at a glance, in at most ``height`` lines."""
    if width >= WIDE:
        return _overview_wide(snapshot, width, height, look)
    summary = snapshot.summary if snapshot else None
    for sentence in (3, 2, 1):
        lines = panels.verdict(summary, width, look, sentence=sentence)
        lines += panels.breakdown(snapshot, width, look)
        lines += panels.curve(snapshot, width, look)
        lines += panels.ranks(snapshot, width, look)
        lines += [panels.memory_line(snapshot, width, look), panels.system_line(snapshot, width, look)]
        if len(lines) <= height:
            break
    return lines[:height]


def _overview_wide(snapshot: Snapshot | None, width: int, height: int, look: Look) -> list[Text]:
    half = (width - _GUTTER) // 2
    summary = snapshot.summary if snapshot else None
    left = panels.verdict(summary, half, look, sentence=3)
    left += [Text(""), *panels.breakdown(snapshot, half, look)]
    right = panels.curve(snapshot, half, look, height=4)
    right += [Text(""), *panels.ranks(snapshot, half, look)] if panels.ranks(snapshot, half, look) else []
    right += [Text(""), panels.memory_line(snapshot, half, look), panels.system_line(snapshot, half, look)]
    right += panels.others(summary, half, 3, look)
    rows = max(len(left), len(right))
    return [_side_by_side(left, right, row, half) for row in range(min(rows, height))]


def _side_by_side(left: list[Text], right: list[Text], row: int, half: int) -> Text:
    line = left[row].copy() if row < len(left) else Text("")
    line.pad_right(max(0, half + _GUTTER - line.cell_len))
    return line + right[row] if row < len(right) else line


def steps(snapshot: Snapshot | None, width: int, height: int, look: Look) -> list[Text]:
    """Step time over the run as a chart, the phases with their tails, and every finding."""
    summary = snapshot.summary if snapshot else None
    table = _phase_table(summary, width)
    chart = panels.curve(snapshot, width, look, height=max(2, min(12, height - len(table) - 6)))
    findings = _findings(summary, width, look)
    return [*chart, Text(""), *table, Text(""), *findings][:height]


def _phase_table(summary: Summary | None, width: int) -> list[Text]:
    if summary is None or not summary.step_time.steps:
        return [Text("No steady step was seen yet.", "dim")]
    head = f"{'whole run':<15}" + "".join(
        f"{name:>10}" for name in ("mean ms", "median", "p95", "p99", "share")
    )
    lines = [Text(fit(head, width), "dim")]
    for name, stats in summary.step_time.phases.items():
        figures = (stats.mean_ms, stats.median_ms, stats.p95_ms, stats.p99_ms)
        share = NOT_AVAILABLE if stats.share_pct is None else f"{stats.share_pct:.1f} %"
        cells = "".join(f"{number(value):>10}" for value in figures)
        line = Text(fit(f"{fit(PHASE_WORDS.get(name, name), 14):<15}{cells}{share:>10}", width))
        line.stylize(panels.PHASE_COLORS.get(name, ""), 0, 15)
        lines.append(line)
    return lines


def _findings(summary: Summary | None, width: int, look: Look) -> list[Text]:
    lines: list[Text] = []
    for finding in summary.findings if summary else []:
        where = "" if finding.scope.first_step is None else f" from step {finding.scope.first_step:,}"
        lines.append(
            Text(fit(panels.headline(finding) + where, width), panels.SEVERITY_COLORS[finding.severity])
        )
        for said in (finding.why, finding.next):
            body = wrap(clean(said, ascii_only=not look.unicode), max(20, width - 2), 2)
            lines += [Text(f"  {line}") for line in body]
    return lines


def ranks(snapshot: Snapshot | None, width: int, height: int, look: Look) -> list[Text]:
    """The heat map of the ranks, and the slowest of them."""
    rows = panels.rank_rows(snapshot)
    if not rows:
        return [Text("No rank has closed a step yet.", "dim")]
    lines = panels.ranks(snapshot, width, look) or [Text("One training process: nothing to compare.", "dim")]
    work = panels.work_by_rank(snapshot)
    head = f"{'rank':>6}{'pid':>10}{'steps':>12}{'step ms':>12}{'own work ms':>14}{'input wait ms':>16}"
    lines += [Text(""), Text(fit(head, width), "dim")]
    slowest = sorted(rows, key=lambda row: -(work.get(row.rank) or row.step_ms or 0.0))
    for row in slowest[: max(0, height - len(lines))]:
        rank = NOT_AVAILABLE if row.rank is None else row.rank
        pid = NOT_AVAILABLE if row.pid is None else row.pid
        figures = f"{number(row.step_ms):>12}{number(work.get(row.rank)):>14}{number(row.input_wait_ms):>16}"
        lines.append(Text(fit(f"{rank:>6}{pid:>10}{row.steps:>12,}{figures}", width)))
    return lines[:height]


def memory(snapshot: Snapshot | None, width: int, height: int, look: Look) -> list[Text]:
    """Memory over the last samples as charts, and what was found about it."""
    lines = [panels.memory_line(snapshot, width, look), panels.system_line(snapshot, width, look), Text("")]
    now = snapshot.now if snapshot else None
    if now is not None:
        rows = max(1, min(6, (height - 10) // 2))
        for title, values in (
            ("Main process", now.memory.main_rss_bytes),
            ("Loader workers", now.memory.workers_pss_bytes),
        ):
            lines += _memory_chart(title, values, width, rows, look)
    summary = snapshot.summary if snapshot else None
    lines += _memory_facts(summary, width)
    return lines[:height]


def _memory_chart(title: str, values: list[int | None], width: int, rows: int, look: Look) -> list[Text]:
    known = [value for value in values if value is not None]
    if not known:
        return []
    chart = column_chart([None if value is None else float(value) for value in values], width, rows, look)
    return [
        Text(fit(f"{title}: {size(known[-1])}, {size(min(known))} to {size(max(known))}", width)),
        *(Text(row, "cyan") for row in chart),
    ]


def _memory_facts(summary: Summary | None, width: int) -> list[Text]:
    if summary is None:
        return []
    process, device = summary.process, summary.step_memory
    facts = [
        (
            f"Peak: main process {size(process.main_rss_peak_bytes)}, "
            f"workers {size(process.workers_pss_peak_bytes)}"
        ),
        (
            f"Growth a step: main process {size(process.main_growth_bytes_per_step)}, "
            f"workers {size(process.workers_growth_bytes_per_step)}"
        ),
        f"Limit {size(process.memory_limit_bytes)}, machine {size(process.memory_total_bytes)}",
        (
            f"Device peak: allocated {size(device.peak_allocated_bytes)}, "
            f"reserved {size(device.peak_reserved_bytes)}"
        ),
        (
            f"Verdicts: process {process.diagnosis}, device {device.diagnosis}, "
            f"system {summary.system.diagnosis}"
        ),
    ]
    return [Text(""), *(Text(fit(fact, width)) for fact in facts)]


Page = Callable[[Snapshot | None, int, int, Look], list[Text]]

PAGES: dict[str, Page] = {"overview": overview, "steps": steps, "ranks": ranks, "memory": memory}
