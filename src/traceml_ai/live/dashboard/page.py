"""One browser's page: drawn once, then kept up to date from the newest snapshot."""

from __future__ import annotations

from typing import Any

from bokeh.document import Document
from bokeh.layouts import column
from bokeh.models import Column, InlineStyleSheet
from bokeh.models.ui.ui_element import UIElement
from bokeh.models.widgets import Div

from traceml_ai.live.dashboard import texts
from traceml_ai.live.dashboard.watcher import Seen, Watcher
from traceml_ai.report.charts import KINDS, Chart, draw
from traceml_ai.schema.summary import Summary

EVERY_MS = 1000

_GRID = (
    ":host { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 520px), 1fr));"
    " gap: 28px 36px; align-items: start; width: 100%; }"
)
_SLOT = ":host { min-width: 0; width: 100%; overflow: hidden; }"
_TEXT = """
:host { display: block; width: 100%; color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
.bk-clearfix { display: block; width: 100%; }
h1 { font-size: 23px; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 0 0 4px; }
h3 { font-size: 15px; margin: 0; }
p { margin: 2px 0 6px; }
.soft, .state { color: var(--soft); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 10px; margin: 0; }
.tiles div { background: var(--card); border-radius: 6px; padding: 8px 12px; }
.tiles dt { color: var(--soft); font-size: 13px; }
.tiles dd { margin: 0; font-size: 19px; font-variant-numeric: tabular-nums; }
.finding { border-left: 5px solid var(--info); background: var(--card); border-radius: 6px;
  padding: 10px 16px; margin: 0 0 10px; overflow-wrap: anywhere; }
.finding.critical { border-color: var(--critical); }
.finding.warning { border-color: var(--warning); }
.finding dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 14px; margin: 4px 0 0; }
.finding dt { color: var(--soft); }
.finding dd { margin: 0; }
.critical .severity { color: var(--critical); }
.warning .severity { color: var(--warning); }
.info .severity { color: var(--info); }
.severity { font-weight: 600; }
/* Turned round, a box that scrolls keeps its end in sight. */
.tail { display: flex; flex-direction: column-reverse; overflow: auto; max-height: 420px; margin-top: 6px;
  background: var(--card); border-radius: 6px; }
.output { padding: 10px 14px; margin: 0; font: 13px/1.45 ui-monospace, monospace; white-space: pre; }
summary { cursor: pointer; color: var(--link); }
"""


class Page:
    """The models of one browser's document.

    Args:
        document: The document.
        watcher: Where the newest snapshot is.
    """

    def __init__(self, document: Document, watcher: Watcher) -> None:
        self._watcher = watcher
        self._shown: Seen | None = None
        self._summary: Summary | None = None
        self._charts: dict[str, Chart] = {}
        self._slots: dict[str, Column] = {}
        self._head, self._tiles, self._findings, self._output = (_div(name) for name in _TEXTS)
        self._grid = column([], name="charts", sizing_mode="stretch_width", stylesheets=[_sheet(_GRID)])
        for root in (self._head, self._tiles, self._findings, self._grid, self._output):
            document.add_root(root)
        self.refresh()
        document.add_periodic_callback(self.refresh, EVERY_MS)

    def refresh(self) -> None:
        """Show the newest snapshot."""
        seen = self._watcher.seen
        if seen is self._shown:
            return
        self._shown = seen
        snapshot = seen.snapshot
        summary = snapshot.summary if snapshot else None
        _say(self._head, texts.head(snapshot, self._watcher.name, remark=seen.remark))
        _say(self._tiles, texts.tiles(snapshot))
        _say(self._findings, texts.findings(summary))
        _say(self._output, f"<h3>Output</h3>{seen.output}")
        if summary is not None and summary is not self._summary:
            self._summary = summary
            self._draw(summary)

    def _draw(self, summary: Summary) -> None:
        for kind in KINDS:
            chart = self._charts.get(kind.key)
            if chart is not None and _update_keeping_zoom(chart, summary):
                continue
            drawn = draw(kind, summary)
            if drawn is not None:
                self._charts[kind.key] = drawn
                self._slot(kind.key).children = [_caption(drawn), drawn.figure]
        children: list[UIElement] = [self._slots[kind.key] for kind in KINDS if kind.key in self._slots]
        if self._grid.children != children:
            self._grid.children = children

    def _slot(self, key: str) -> Column:
        if key not in self._slots:
            self._slots[key] = column(
                [], name=f"chart-{key}", sizing_mode="stretch_width", stylesheets=[_sheet(_SLOT)]
            )
        return self._slots[key]


_TEXTS = ("head", "tiles", "findings", "output")


def _div(name: str) -> Div:
    return Div(name=name, text="", sizing_mode="stretch_width", stylesheets=[_sheet(_TEXT)])


def _caption(chart: Chart) -> Div:
    caption = _div(f"caption-{chart.key}")
    caption.text = f"<h3>{chart.title}</h3><p class='soft'>{chart.kind.explains}</p>"
    return caption


def _sheet(css: str) -> InlineStyleSheet:
    return InlineStyleSheet(css=css)


def _say(div: Div, text: str) -> None:
    if div.text != text:
        div.text = text


def _update_keeping_zoom(chart: Chart, summary: Summary) -> bool:
    """Show newer columns; where somebody has zoomed in, the picture stays."""
    axes: list[Any] = [chart.figure.x_range, chart.figure.y_range]
    zoomed = [
        (axis, axis.start, axis.end)
        for axis in axes
        if getattr(axis, "reset_start", None) is not None
        and (axis.start, axis.end) != (axis.reset_start, axis.reset_end)
    ]
    if not chart.update(summary):
        return False
    for axis, start, end in zoomed:
        axis.start, axis.end = start, end
    return True
