"""The page's words as HTML: everything that comes from a run is escaped here."""

from __future__ import annotations

from html import escape

from traceml_ai.live.screen import Line
from traceml_ai.live.snapshot import Now, Snapshot
from traceml_ai.live.styles import PLAIN, Style
from traceml_ai.report.card import worth_of
from traceml_ai.report.text import NOT_AVAILABLE, clean, duration, millis, number, size, steps_of
from traceml_ai.report.words import KIND_WORDS, QUIET_KINDS
from traceml_ai.schema.summary import Finding, Summary

# Readable on light and on dark paper.
_ANSI = """#444c56 #d1242f #1a7f37 #9a6700 #0969da #8250df #1b7c83 #6e7781
#57606a #ff5c5c #2da44e #bf8700 #218bff #a475f9 #3192aa #8c959f""".split()  # noqa: SIM905 -- a table


def head(snapshot: Snapshot | None, name: str, *, remark: str = "") -> str:
    """The run, and what it does right now."""
    if snapshot is None:
        return f"<h1>{_text(name)}</h1><p class='soft'>waiting for the first figures</p>"
    run = snapshot.summary.run if snapshot.summary else None
    now = snapshot.now
    parts = [
        snapshot.status,
        steps_of(now.steps if now else (run.steps if run else 0)),
        duration(now.elapsed_s if now else (run.duration_s if run else None)),
        ", ".join(run.devices) if run else "",
        f"{len(now.ranks):,} ranks" if now and len(now.ranks) > 1 else "",
        remark,
    ]
    facts = " · ".join(_text(part) for part in parts if part)
    return f"<h1>{_text(snapshot.name)}</h1><p class='state {escape(snapshot.status)}'>{facts}</p>"


def tiles(snapshot: Snapshot | None) -> str:
    """The figures that change from second to second."""
    now = snapshot.now if snapshot is not None else None
    found = _run_tiles(snapshot) if now is None or not now.window_steps else _now_tiles(now)
    cells = "".join(f"<div><dt>{_text(label)}</dt><dd>{_text(value)}</dd></div>" for label, value in found)
    return f"<dl class='tiles'>{cells}</dl>"


def _now_tiles(now: Now) -> list[tuple[str, str]]:
    memory, machine = now.memory, now.machine
    main = memory.main_rss_bytes[-1] if memory.main_rss_bytes else None
    wait = now.phases_ms.get("input_wait")
    share = None if wait is None or not now.step_ms else 100 * wait / now.step_ms
    seconds = NOT_AVAILABLE if now.window_s is None else f"last {now.window_s:.0f} s"
    return [
        (f"step ({seconds})", millis(now.step_ms)),
        ("input wait", NOT_AVAILABLE if share is None else f"{share:.1f} %"),
        ("samples/s", number(now.samples_per_sec)),
        ("steps/s", number(now.steps_per_sec)),
        ("main process", size(main)),
        ("device peak", size(memory.peak_allocated_bytes)),
        ("CPUs busy", f"{number(machine.busy_cores, 2)} of {_plain(machine.usable_cpus)}"),
        ("host", NOT_AVAILABLE if machine.host_cpu_pct is None else f"{machine.host_cpu_pct:.0f} %"),
    ]


def _run_tiles(snapshot: Snapshot | None) -> list[tuple[str, str]]:
    summary = snapshot.summary if snapshot else None
    if summary is None:
        return []
    return [
        ("step (whole run)", millis(summary.step_time.step_ms)),
        ("input wait", _pct(summary.step_time.dataloader_pct)),
        ("samples/s", number(summary.throughput.samples_per_sec)),
        ("steps/s", number(summary.throughput.steps_per_sec)),
        ("main process peak", size(summary.process.main_rss_peak_bytes)),
        ("device peak", size(summary.step_memory.peak_allocated_bytes)),
        ("host", _pct(summary.system.cpu_pct)),
    ]


def findings(summary: Summary | None) -> str:
    """The verdict and every further finding, with what to do next."""
    if summary is None:
        return "<p class='soft'>The first verdict comes a second after the first steps.</p>"
    others = [f for f in summary.findings if f != summary.diagnosis and f.kind not in QUIET_KINDS]
    parts = [_finding(summary.diagnosis, summary, "verdict"), *(_finding(f, summary, "") for f in others)]
    unseen = "".join(f"<li>{_text(warning)}</li>" for warning in summary.warnings)
    return "".join(parts) + (
        f"<details><summary>Not seen</summary><ul>{unseen}</ul></details>" if unseen else ""
    )


def _finding(finding: Finding, summary: Summary, extra: str) -> str:
    lines = [("Why", finding.why), ("Next", finding.next)]
    gain = worth_of(finding, summary.step_time.step_ms)
    if gain:
        lines.append(("Gain", gain))
    rows = "".join(f"<dt>{label}</dt><dd>{_text(said)}</dd>" for label, said in lines)
    words = KIND_WORDS.get(finding.kind, "")
    return (
        f"<section class='finding {escape(finding.severity)} {extra}'><h2>{_text(finding.kind)} "
        f"<span class='severity'>{_text(finding.severity)}</span> {_text(words)}</h2>"
        f"<dl>{rows}</dl></section>"
    )


def output(lines: list[Line]) -> str:
    """The tail of the program's output, with its colours."""
    rows = ("".join(_run(text, style) for text, style in line.runs()) for line in lines)
    return f"<div class='tail'><pre class='output'>{chr(10).join(rows).rstrip()}</pre></div>"


def _run(text: str, style: Style) -> str:
    said = escape(clean_cells(text))
    css = _css(style) if style != PLAIN else ""
    return f"<span style='{css}'>{said}</span>" if css else said


def clean_cells(text: str) -> str:
    """Return text without anything that reorders or hides what is beside it."""
    return "".join(clean(character) if not character.isspace() else character for character in text)


def _css(style: Style) -> str:
    parts = []
    if (color := _color(style.background if style.reverse else style.color)) is not None:
        parts.append(f"color:{color}")
    if (color := _color(style.color if style.reverse else style.background)) is not None:
        parts.append(f"background:{color}")
    if style.bold:
        parts.append("font-weight:bold")
    if style.dim:
        parts.append("opacity:.7")
    if style.italic:
        parts.append("font-style:italic")
    if style.underline:
        parts.append("text-decoration:underline")
    return ";".join(parts)


def _color(color: int | str | None) -> str | None:
    if color is None or isinstance(color, str):
        return color
    if color < len(_ANSI):
        return _ANSI[color]
    from rich.color import Color

    return Color.from_ansi(color).get_truecolor().hex


def _pct(value: float | None) -> str:
    return NOT_AVAILABLE if value is None else f"{value:.1f} %"


def _plain(value: float | None) -> str:
    return NOT_AVAILABLE if value is None else f"{value:g}"


def _text(text: str) -> str:
    return escape(clean(text))
