"""What every chart is made of: columns from a summary, a figure over them, and the same as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from bokeh.models import (
    AdaptiveTicker,
    ColumnDataSource,
    HoverTool,
    InlineStyleSheet,
    NumeralTickFormatter,
    Range1d,
)
from bokeh.models.annotations import Legend
from bokeh.plotting import figure

from traceml_ai.report.charts.colours import GRID, INK
from traceml_ai.schema.summary import Summary

Columns: TypeAlias = Mapping[str, Sequence[Any]]
Sources: TypeAlias = Mapping[str, ColumnDataSource]
Figure: TypeAlias = figure
HoverMode = Literal["mouse", "vline", "hline"]
Subject = TypeVar("Subject")

_FONT = "system-ui, sans-serif"
# The page decides between light, dark and paper: variables reach into a figure's shadow tree.
_FILTER = ":host { filter: var(--tm-chart-filter, none); }"


class Table(NamedTuple):
    """A chart's facts as text: one list of cells for each row, every cell as it is to be read."""

    head: list[str]
    rows: list[list[str]]


class View(NamedTuple):
    """What a figure shows of a summary.

    Attributes:
        columns: Source name to columns of equal length.
        factors: The categories of the vertical axis, top first; ``None``: it is a number.
        x_range: Where the horizontal axis begins and ends; ``None``: where the data does.
        y_range: The same for the vertical axis.
    """

    columns: Mapping[str, Columns]
    factors: list[str] | None = None
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None

    @property
    def shape(self) -> dict[str, set[str]]:
        """Which columns there are: figures are drawn for these."""
        return {name: set(columns) for name, columns in self.columns.items()}


@dataclass(frozen=True)
class KindOf(Generic[Subject]):
    """One kind of chart of a summary, or of a comparison.

    Attributes:
        key: Its name in code and in pages.
        title: Its heading.
        explains: One sentence: what is to be seen, and how to read it.
        view: What there is to draw, ``None`` for nothing.
        figure: Draws it.
        table: Says the same as text.
    """

    key: str
    title: str
    explains: str
    view: Callable[[Subject], View | None]
    figure: Callable[[Subject, View, Sources], Figure]
    table: Callable[[Subject], Table]


@dataclass(frozen=True)
class ChartOf(Generic[Subject]):
    """A chart that was drawn."""

    kind: KindOf[Subject]
    figure: Figure
    sources: Sources
    shape: dict[str, set[str]]
    table: Table

    @property
    def key(self) -> str:
        """The kind's name."""
        return self.kind.key

    @property
    def title(self) -> str:
        """The kind's heading."""
        return self.kind.title

    def update(self, subject: Subject) -> bool:
        """Show a newer summary in the same figure.

        Returns:
            False when that takes another figure: draw it anew. This one is left as it was.
        """
        view = self.kind.view(subject)
        if view is None or view.shape != self.shape:
            return False
        for name, source in self.sources.items():
            source.data = dict(view.columns[name])
        _set_ranges(self.figure, view)
        return True


Kind: TypeAlias = KindOf[Summary]
Chart: TypeAlias = ChartOf[Summary]


def draw(kind: KindOf[Subject], subject: Subject) -> ChartOf[Subject] | None:
    """Draw one kind of chart; ``None`` when the run has nothing to show in it."""
    view = kind.view(subject)
    if view is None:
        return None
    sources = {name: ColumnDataSource(data=dict(columns)) for name, columns in view.columns.items()}
    fig = kind.figure(subject, view, sources)
    _set_ranges(fig, view)
    return ChartOf(kind, fig, sources, view.shape, kind.table(subject))


def _set_ranges(fig: Figure, view: View) -> None:
    if view.factors is not None:
        fig.y_range.factors = view.factors[::-1]  # type: ignore[attr-defined]  # a FactorRange, see new_figure
    for axis, wanted in ((fig.x_range, view.x_range), (fig.y_range, view.y_range)):
        if wanted is not None and isinstance(axis, Range1d):
            axis.start, axis.end = wanted
            axis.reset_start, axis.reset_end = wanted


def _range(wanted: tuple[float, float]) -> Range1d:
    return Range1d(start=wanted[0], end=wanted[1])


def new_figure(view: View, *, height: int, x: str | None, y: str | None = None, **options: Any) -> Figure:
    """Return an empty figure in our style, as wide as the page lets it be.

    Args:
        view: What it will show: decides about the kind of its axes.
        height: In pixels.
        x: Title of the horizontal axis, with the unit.
        y: Title of the vertical one.
        options: For bokeh's ``figure``.
    """
    if view.factors is not None:
        options["y_range"] = view.factors[::-1]
    elif view.y_range is not None:
        options["y_range"] = _range(view.y_range)
    if view.x_range is not None:
        options["x_range"] = _range(view.x_range)
    fig = figure(
        height=height,
        sizing_mode="stretch_width",
        min_width=280,
        tools="xpan,xbox_zoom,reset" if view.factors is None else "",
        toolbar_location="above" if view.factors is None else None,
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        stylesheets=[InlineStyleSheet(css=_FILTER)],
        **options,
    )
    fig.toolbar.logo = None
    fig.toolbar.autohide = True
    _style_axes(fig, x, y)
    return fig


def _style_axes(fig: Figure, x: str | None, y: str | None) -> None:
    for axis, title in ((fig.xaxis, x), (fig.yaxis, y)):
        axis.axis_label = title
        axis.axis_label_text_font_style = "normal"
        for part in ("axis_label", "major_label"):
            setattr(axis, f"{part}_text_color", INK)
            setattr(axis, f"{part}_text_font", _FONT)
            setattr(axis, f"{part}_text_font_size", "12px")
        axis.axis_line_color = axis.major_tick_line_color = GRID
        axis.minor_tick_line_color = None
    fig.grid.grid_line_color = GRID


def add_hover(
    fig: Figure, renderers: Sequence[Any], tooltips: Sequence[tuple[str, str]], mode: HoverMode
) -> None:
    """Show figures beside the pointer; ``mode`` is bokeh's: mouse, vline or hline."""
    fig.add_tools(HoverTool(renderers=list(renderers), tooltips=list(tooltips), mode=mode))


def add_legend(fig: Figure, items: Sequence[tuple[str, list[Any]]], *, hides: bool = True) -> None:
    """Put a legend above the figure; a click on an entry hides what it names."""
    legend = Legend(items=list(items), orientation="horizontal", location="left", spacing=12, margin=0)
    legend.label_text_color = INK
    legend.label_text_font = _FONT
    legend.label_text_font_size = "12px"
    legend.background_fill_color = legend.border_line_color = None
    legend.nrows = "auto" if len(items) > _ONE_LINE else 1
    legend.ncols = _ONE_LINE if len(items) > _ONE_LINE else "auto"
    if hides:
        legend.click_policy = "hide"
    fig.add_layout(legend, "above")


_ONE_LINE = 7  # entries in one line of a legend


def count_steps(fig: Figure) -> None:
    """Write whole numbers of steps along the horizontal axis."""
    fig.xaxis.formatter = NumeralTickFormatter(format="0,0")


def count_bytes(fig: Figure) -> None:
    """Write binary units along the vertical axis, at round numbers of them."""
    fig.yaxis.formatter = NumeralTickFormatter(format="0[.]0 ib")
    fig.yaxis.ticker = AdaptiveTicker(base=1024, mantissas=[float(1 << bits) for bits in range(10)])
