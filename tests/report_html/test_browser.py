"""The report in a real browser, opened from disk: no error, no request, charts that show."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from report_html.browser import chromium, needs_browser, visit
from report_html.runs import full, hostile
from traceml_ai.report.charts import draw_all
from traceml_ai.report.html import render_html

pytestmark = needs_browser

CANVASES = """Array.from(document.querySelectorAll('.chart')).map((chart) => {
  const inside = []; const walk = (node) => { if (node.shadowRoot) walk(node.shadowRoot);
    if (node.tagName === 'CANVAS') inside.push(node); Array.from(node.children || []).forEach(walk); };
  walk(chart); return inside.filter((canvas) => canvas.width > 200 && canvas.height > 20).length; })"""
PAPER = "getComputedStyle(document.body).backgroundColor"
FILTER = "getComputedStyle(document.querySelector('.chart').firstElementChild).filter"
TOO_WIDE = "document.documentElement.scrollWidth > document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def devtools() -> Iterator[str]:
    with chromium() as address:
        yield address


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render_html(full()), encoding="utf-8")
    return path


def test_it_draws_every_chart_logs_no_error_and_asks_for_nothing(devtools: str, page: Path) -> None:
    seen = visit(devtools, page, ask=[CANVASES])
    assert seen.errors == []
    assert seen.requests == []
    assert seen.drawn == len(draw_all(full()))
    assert all(count > 0 for count in seen.found[0])


def test_hostile_names_do_nothing_in_a_browser_either(devtools: str, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(render_html(hostile()), encoding="utf-8")
    seen = visit(devtools, path, ask=["document.images.length", "document.querySelector('h1').textContent"])
    assert seen.errors == []
    assert seen.requests == []
    assert seen.drawn > 0
    assert seen.found[0] == 0
    assert seen.found[1].startswith("</script><script>alert(1)")


def test_it_is_light_or_dark_as_the_reader_has_it(devtools: str, page: Path) -> None:
    light, dark = visit(devtools, page, ask=[PAPER]), visit(devtools, page, ask=[PAPER, FILTER], dark=True)
    assert light.found == ["rgb(255, 255, 255)"]
    assert dark.found[0] == "rgb(20, 23, 28)"
    assert "invert" in dark.found[1]
    assert brightness(light.screenshot) > 200
    assert brightness(dark.screenshot) < 60


def brightness(screenshot: bytes) -> float:
    grey = Image.open(io.BytesIO(screenshot)).convert("L")
    pixels = grey.resize((64, 64)).tobytes()
    return sum(pixels) / len(pixels)


def test_the_button_changes_light_to_dark_from_the_keyboard(devtools: str, page: Path) -> None:
    press = """(() => { const b = document.getElementById('theme'); b.focus(); b.click();
      return b.textContent; })()"""
    assert visit(devtools, page, ask=[press, PAPER]).found == ["Light", "rgb(20, 23, 28)"]


def test_it_fits_a_narrow_screen(devtools: str, page: Path) -> None:
    assert visit(devtools, page, ask=[TOO_WIDE], width=390).found == [False]
