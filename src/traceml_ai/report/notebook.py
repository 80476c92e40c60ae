"""A summary as a notebook shows it: the card's figures as a table, in the notebook's own colours."""

from __future__ import annotations

from html import escape
from typing import Any

import msgspec

from traceml_ai.report.card import render_card
from traceml_ai.schema.summary import Summary

_WIDTH = 96


class Shown(dict[str, Any]):
    """A plain dictionary that a notebook displays as the run's card.

    Args:
        values: What the dictionary holds.
        whole: The summary, with the keys of ``final_summary.json``.
    """

    def __init__(self, values: dict[str, Any], whole: dict[str, Any]) -> None:
        super().__init__(values)
        self._whole = whole

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        """Travel as the dictionary that it is."""
        return dict, (dict(self),)

    def _repr_html_(self) -> str:
        return notebook_html(self._whole)


def notebook_html(whole: dict[str, Any]) -> str:
    """Return a fragment of HTML for a summary's plain values."""
    summary = msgspec.convert(whole, Summary)
    first = summary.diagnosis
    head = f"<strong>{escape(first.kind)}</strong> ({escape(first.severity)})"
    said = [head, *(escape(text) for text in (first.why, first.next) if text)]
    card = escape(render_card(summary, width=_WIDTH))
    return (
        f'<div class="traceml"><p>{"<br>".join(said)}</p>'
        f'{_phases(whole)}<details><summary>the whole card</summary><pre style="line-height:1.2">{card}</pre>'
        "</details></div>"
    )


def _phases(whole: dict[str, Any]) -> str:
    rows = [_row(name, phase) for name, phase in (whole["step_time"]["phases"] or {}).items()]
    if not rows:
        return "<p>No step yet.</p>"
    titles = "".join(f"<th>{title}</th>" for title in ("phase", "mean ms", "median", "p95", "share"))
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _row(name: str, phase: dict[str, Any]) -> str:
    figures = [_number(phase.get(key)) for key in ("mean_ms", "median_ms", "p95_ms")]
    share = _number(phase.get("share_pct"))
    cells = [escape(name.replace("_", " ")), *figures, share if share == "n/a" else f"{share} %"]
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3g}"
