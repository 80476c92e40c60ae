"""A page that needs nothing but itself: scripts, styles and data inside, nothing asked of anybody.

The content-security policy lets no request out, and runs the two scripts of the page by their hashes: what
a run is called, or what an exception says, can't become a script. Styles may be inline since bokeh gives
each figure its own; with no address allowed to load from, they can show but not tell.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import bokeh
import jinja2
from bokeh.core.types import ID
from bokeh.embed import json_item
from markupsafe import Markup

from traceml_ai.report.charts import DARK_FILTER
from traceml_ai.report.charts.base import ChartOf
from traceml_ai.report.text import clean

__all__ = ["make_page"]

_TEMPLATES = files("traceml_ai.report") / "templates"


def make_page(template: str, title: str, charts: Sequence[ChartOf[Any]], **values: Any) -> str:
    """Return a page as HTML.

    Args:
        template: Its name in the templates folder.
        title: What the browser shows as its name.
        charts: Every chart of the page, each drawn where the template has ``chart-<key>``.
        values: For the template; strings are escaped, and cleaned of what could steer text.
    """
    library, script = _library(), _read("page.js")
    return (
        _environment()
        .get_template(template)
        .render(
            title=title,
            policy=_policy([library, script]),
            css=Markup(_read("page.css").replace("{{ dark_filter }}", DARK_FILTER)),  # noqa: S704  ours
            charts_json=_json([json_item(chart.figure, ID(f"chart-{chart.key}")) for chart in charts]),
            library_js=Markup(library),  # noqa: S704  bokeh's own file
            page_js=Markup(script),  # noqa: S704  ours
            **values,
        )
    )


def _policy(scripts: Sequence[str]) -> str:
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _json(items: Sequence[Mapping[str, Any]]) -> Markup:
    """Return JSON that can't end the element it is in, whatever strings it holds."""
    text = json.dumps(items, separators=(",", ":"))  # ASCII: no line separators of Unicode's either
    safe = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Markup(safe)  # noqa: S704  escaped one line above


@cache
def _library() -> str:
    """Return the one part of BokehJS that draws figures: no widgets, no tables, no formulas."""
    return (files(bokeh) / "server" / "static" / "js" / "bokeh.min.js").read_text(encoding="utf-8")


@cache
def _read(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FunctionLoader(_read),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_cleaned,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _cleaned(value: Any) -> Any:
    """Take out of text what could steer how the text around it is shown (bidirectional overrides)."""
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value
