"""The page around the models."""

from __future__ import annotations

from bokeh.document import Document
from bokeh.events import ConnectionLost
from bokeh.models import CustomJS
from jinja2 import Template

from traceml_ai.live.dashboard.page import Page
from traceml_ai.live.dashboard.watcher import Watcher
from traceml_ai.report.charts import DARK_FILTER

_STYLE = """
:root { --paper: #ffffff; --card: #f6f8fa; --ink: #1f2328; --soft: #57606a; --link: #0a58a8;
  --critical: #b3261e; --warning: #8a4b00; --info: #3f4fa8; --tm-chart-filter: none;
  color-scheme: light dark; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14171c; --card: #1d2128; --ink: #e6e9ed; --soft: #a3abb5; --link: #79b8ff;
    --critical: #ff8a80; --warning: #ffb870; --info: #a9b4ff; --tm-chart-filter: DARK; }
}
body { margin: 0; background: var(--paper); }
main { max-width: 1500px; margin: 0 auto; padding: 20px 24px 48px; display: grid; gap: 20px; }
#lost { display: none; position: sticky; top: 0; z-index: 9; padding: 8px 24px; background: var(--critical);
  color: var(--paper); font: 15px system-ui, sans-serif; }
"""

_SAY_LOST = 'document.getElementById("lost").style.display = "block"'

PAGE = Template(
    """{% extends base %}
{% block title %}{{ title | e }}{% endblock %}
{% block preamble %}<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer"><link rel="icon" href="data:,">
<style>{{ style }}</style>{% endblock %}
{% block contents %}<div id="lost" role="alert">The dashboard's server has ended: these figures stay as they
were. <code>traceml attach --dashboard</code> opens them again.</div><main>
{% for name in ("head", "tiles", "findings", "charts", "output") %}{{ embed(roots[name]) }}
{% endfor %}</main>{% endblock %}"""
)


def dress(document: Document, watcher: Watcher) -> None:
    """Fill a new browser's document."""
    document.title = f"{watcher.name} · TraceML"
    document.template = PAGE
    document.template_variables["style"] = _STYLE.replace("DARK", DARK_FILTER)
    document.js_on_event(ConnectionLost, CustomJS(code=_SAY_LOST))
    Page(document, watcher)
