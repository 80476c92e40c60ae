"""Which run a tracker is told about: this process's own, or one on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from traceml_ai.errors import TraceMLError
from traceml_ai.report.card import render_card
from traceml_ai.report.flat import flatten
from traceml_ai.report.html import need_libraries, render_html
from traceml_ai.schema.summary import Summary, decode, encode
from traceml_ai.spool.runfolder import SUMMARY_FILE

FOLDER = "traceml"
"""The artifacts' folder, or the first part of their name."""


class Told(NamedTuple):
    """What a tracker gets of a run."""

    summary: Summary
    flat: dict[str, float | str]
    json: str
    card: str
    html: str | None  # None: not wanted, or bokeh is not installed

    @property
    def files(self) -> dict[str, str]:
        """File name to content."""
        both = {SUMMARY_FILE: self.json, "report.html": self.html}
        return {name: text for name, text in both.items() if text is not None}


def tell_of(source: Summary | str | Path | None, *, html: bool) -> Told | None:
    """Return what there is to tell.

    Args:
        source: A summary, the path of a ``final_summary.json`` or a run folder; ``None``: the run of this
            process, as far as it has come.
        html: Make the report too, where bokeh is installed.

    Returns:
        ``None`` when this process is not measured.

    Raises:
        TraceMLError: The path leads to no summary.
    """
    summary = _own() if source is None else source if isinstance(source, Summary) else _read(Path(source))
    if summary is None:
        return None
    return Told(
        summary=summary,
        flat=flatten(msgspec.to_builtins(summary)),
        json=encode(summary).decode(),
        card=render_card(summary),
        html=render_html(summary) if html and _can_draw() else None,
    )


def _own() -> Summary | None:
    from traceml_ai.api import final_summary

    found: dict[str, Any] | None = final_summary()
    return None if found is None else msgspec.convert(found, Summary)


def _read(path: Path) -> Summary:
    file = path / SUMMARY_FILE if path.is_dir() else path
    try:
        data = file.read_bytes()
    except OSError as error:
        raise TraceMLError(f"can't read {file} ({error.strerror}): name a run folder") from None
    return decode(data, source=str(file))


def _can_draw() -> bool:
    try:
        need_libraries()
    except TraceMLError:
        return False
    return True
