"""The charts of a run: from a `Summary`, a value that never changes, to bokeh figures.

The HTML report and the live dashboard draw with the same functions, so that they can't disagree:

* `KINDS`: what can be drawn, in reading order. A `Kind` has a ``key``, a ``title``, a sentence that
  ``explains`` it, and three functions of a summary: its columns, its figure and its table.
* `draw(kind, summary) -> Chart | None`: one chart; ``None`` when the run has nothing of the kind (no
  device memory on a machine without a device, say).
* `draw_all(summary) -> list[Chart]`: all that there is.
* `Chart.figure`: a bokeh figure of its own, to be put into any document or layout.
  `Chart.table`: the same facts as text, for those who can't see the picture.
* `Chart.update(summary) -> bool`: put a newer summary's columns into the figure's sources, as a live
  page does. False when another set of lines is needed (a phase was seen for the first time):
  draw it anew then.
* `PHASE_COLOURS`, `colour_of(phase)`: the colours, for legends outside the figures.
* `DARK_FILTER`: what a dark page sets the CSS variable ``--tm-chart-filter`` to; the figures take it from
  the page they are in, so one drawing serves light, dark and paper.

Example:
    >>> from traceml_ai.report.charts import draw_all  # doctest: +SKIP
    >>> for chart in draw_all(summary):  # doctest: +SKIP
    ...     document.add_root(chart.figure)

Nothing here needs the browser to evaluate code (no ``CustomJS``), so a page with a strict
content-security policy can show it. bokeh is imported here and only here: install ``traceml-ai[report]``.
"""

from __future__ import annotations

from traceml_ai.report.charts.base import Chart, Kind, Table, draw
from traceml_ai.report.charts.colours import DARK_FILTER, PHASE_COLOURS, SEVERITY_COLOURS, colour_of
from traceml_ai.report.charts.host import DEVICE_MEMORY, HOST, MEMORY, PROCESSORS
from traceml_ai.report.charts.ranks import RANKS
from traceml_ai.report.charts.run_time import BETWEEN_STEPS, RUN_TIME
from traceml_ai.report.charts.step import BREAKDOWN, HISTOGRAMS
from traceml_ai.report.charts.timeline import PHASES_OVER_TIME, TIMELINE
from traceml_ai.schema.summary import Summary

__all__ = [
    "BETWEEN_STEPS",
    "BREAKDOWN",
    "DARK_FILTER",
    "DEVICE_MEMORY",
    "HISTOGRAMS",
    "HOST",
    "KINDS",
    "MEMORY",
    "PHASES_OVER_TIME",
    "PHASE_COLOURS",
    "PROCESSORS",
    "RANKS",
    "RUN_TIME",
    "SEVERITY_COLOURS",
    "TIMELINE",
    "Chart",
    "Kind",
    "Table",
    "colour_of",
    "draw",
    "draw_all",
]

KINDS: tuple[Kind, ...] = (
    BREAKDOWN,
    TIMELINE,
    PHASES_OVER_TIME,
    HISTOGRAMS,
    RANKS,
    RUN_TIME,
    BETWEEN_STEPS,
    PROCESSORS,
    MEMORY,
    DEVICE_MEMORY,
    HOST,
)


def draw_all(summary: Summary) -> list[Chart]:
    """Draw every chart that the run has something for, in reading order."""
    drawn = (draw(kind, summary) for kind in KINDS)
    return [chart for chart in drawn if chart is not None]
