"""The terminal view over real run folders: what it draws at which size, and what its keys do."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from html import unescape
from pathlib import Path

import pytest
from textual.pilot import Pilot

from live.runs import LiveRun
from traceml_ai.live.source import Source
from traceml_ai.live.terminal.app import LiveView
from traceml_ai.live.terminal.keys import to_bytes
from traceml_ai.live.terminal.look import Look, column_chart, fold, heat, spark

SIZES = [(80, 24), (120, 40), (160, 50), (250, 60)]
IN_SIGHT = (
    "TraceML · digits · running · 1,000 steps",
    "1 overview",
    "Why",
    "Next",
    "input wait",
    "forward",
    "backward",
    "optimizer",
    "residual",
    "Step time, whole run",
    "Memory main process 400 MiB",
    "System",
    "output",
    "start",
    "green",
    "epoch 100%",
    "? help",
)
Body = Callable[[LiveView, Pilot[None]], Awaitable[None]]


def look_at(run: LiveRun, body: Body, *, size: tuple[int, int] = (120, 40), look: Look | None = None) -> str:
    """Open the view, do something with it; returns what it shows at last, as SVG."""

    async def session() -> str:
        view = LiveView(Source(run.folder), look=look or Look())
        async with view.run_test(size=size) as pilot:
            await pilot.pause(0.15)
            await body(view, pilot)
            await pilot.pause()
            return view.export_screenshot()

    return asyncio.run(session())


async def nothing(_view: LiveView, _pilot: Pilot[None]) -> None:
    """Only look."""


def rows(svg: str) -> list[str]:
    """Return the rows of text in a screenshot."""
    found: dict[str, list[tuple[float, str]]] = {}
    for x, y, text in re.findall(r'<text [^>]*x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>', svg):
        found.setdefault(y, []).append((float(x), unescape(text).replace("\xa0", " ")))
    lines = sorted(found.items(), key=lambda each: float(each[0]))
    return ["".join(text for _, text in sorted(parts)).rstrip() for _, parts in lines]


@pytest.fixture
def run(tmp_path: Path) -> LiveRun:
    run = LiveRun(tmp_path)
    run.output.write(
        b"start\r\n\x1b[32mgreen\x1b[0m\r\n" + b"".join(b"\repoch %3d%%" % i for i in range(101))
    )
    run.train(600)
    run.train(400, forward=9.0)
    run.analyse()
    run.publish()
    return run


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_everything_is_in_sight_at_every_size(run: LiveRun, size: tuple[int, int]) -> None:
    text = "\n".join(rows(look_at(run, nothing, size=size)))

    for part in IN_SIGHT:
        assert part in text, part
    assert re.search(r"▲ SLOWDOWN from step \d+|SLOWDOWN from step \d+ ▲", text)
    assert text.count("epoch") == 1


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("tab", ["steps", "ranks", "memory", "log"])
def test_every_tab_fits_every_size(run: LiveRun, size: tuple[int, int], tab: str) -> None:
    async def body(view: LiveView, pilot: Pilot[None]) -> None:
        await pilot.press(str(("overview", "steps", "ranks", "memory", "log").index(tab) + 1))
        await pilot.pause(0.1)
        assert view.query_one("#keys").region.y == size[1] - 1

    shown = rows(look_at(run, body, size=size))

    assert len(shown) <= size[1] + 1  # with the title of the picture
    assert any({"steps": "p95", "ranks": "input wait ms", "memory": "Peak:", "log": "green"}[tab] in line
               for line in shown)  # fmt: skip


@pytest.mark.parametrize("ranks", [2, 8, 256, 1024])
def test_any_number_of_ranks_is_one_heat_row_that_shows_the_slow_one(tmp_path: Path, ranks: int) -> None:
    run = LiveRun(tmp_path, ranks=ranks, slow=1)
    run.train(12)
    run.publish()
    run.train(12)
    run.publish()
    svg = look_at(run, nothing, size=(100, 40))
    shown = rows(svg)

    (said,) = [line for line in shown if line.strip().startswith("Ranks")]
    assert f"Ranks 0 to {ranks - 1:,}" in said
    assert "slowest 1: " in said
    heat_row = shown[shown.index(said) + 1].strip()
    assert len(heat_row) == min(ranks, 100)
    assert len(set(heat_row)) == 2


@pytest.mark.parametrize("size", [(80, 24), (250, 60)], ids=str)
def test_without_unicode_there_is_not_one_character_outside_ascii(
    run: LiveRun, size: tuple[int, int]
) -> None:
    run.output.write("日本 ✓\r\n".encode())
    for key in "12345?":

        async def body(_view: LiveView, pilot: Pilot[None], key: str = key) -> None:
            await pilot.press(key)
            await pilot.pause(0.1)

        assert "\n".join(rows(look_at(run, body, size=size, look=Look(unicode=False)))).isascii()


def test_a_terminal_gets_what_its_environment_allows() -> None:
    assert Look.of({}, "utf-8") == Look(unicode=True, color=True)
    assert Look.of({"NO_COLOR": "1"}, "UTF-8") == Look(unicode=True, color=False)
    for environ, encoding in (({}, "ascii"), ({"LC_ALL": "C"}, "utf-8"), ({"TRACEML_ASCII": "1"}, "utf-8")):
        assert Look.of(environ, encoding).unicode is False


def test_new_figures_and_new_output_appear_by_themselves(run: LiveRun) -> None:
    async def body(_view: LiveView, pilot: Pilot[None]) -> None:
        run.train(500)
        run.output.write(b"\r\nnews\r\n")
        run.publish()
        await pilot.pause(0.8)

    text = "\n".join(rows(look_at(run, body)))

    assert "1,500 steps" in text
    assert "news" in text


def test_a_paused_view_stands_still_and_catches_up(run: LiveRun) -> None:
    async def body(view: LiveView, pilot: Pilot[None]) -> None:
        await pilot.press("p")
        run.output.write(b"\r\nnews\r\n")
        await pilot.pause(0.4)
        assert "news" not in "\n".join(rows(view.export_screenshot()))
        assert "paused" in "\n".join(rows(view.export_screenshot()))
        await pilot.press("p")

    assert "news" in "\n".join(rows(look_at(run, body)))


def test_the_output_can_be_searched(run: LiveRun) -> None:
    run.output.write(
        b"".join(b"\r\nline %d %s" % (i, b"Needle" if i in {30, 90} else b"hay") for i in range(200))
    )

    async def body(view: LiveView, pilot: Pilot[None]) -> None:
        await pilot.press("5", "slash", *"needle", "enter")
        await pilot.pause()
        assert view.log_view.at_match == 93
        await pilot.press("N")
        assert view.log_view.at_match == 33
        await pilot.press("n")
        assert view.log_view.at_match == 93

    text = "\n".join(rows(look_at(run, body)))

    assert "2 lines with 'needle'" in text
    assert "line 90 Needle" in text


def test_scrolling_up_stays_there_and_the_end_key_follows_again(run: LiveRun) -> None:
    run.output.write(b"".join(b"\r\nline %d" % i for i in range(200)))

    async def body(view: LiveView, pilot: Pilot[None]) -> None:
        await pilot.press("5", "home")
        run.output.write(b"\r\nnews")
        await pilot.pause(0.3)
        assert "start" in "\n".join(rows(view.export_screenshot()))
        assert "scrolled up (End: newest)" in "\n".join(rows(view.export_screenshot()))
        await pilot.press("end")

    assert "news" in "\n".join(rows(look_at(run, body)))


def test_the_card_can_be_copied(run: LiveRun) -> None:
    copied: list[str] = []

    async def body(view: LiveView, pilot: Pilot[None]) -> None:
        await pilot.press("c")
        await pilot.pause()
        copied.append(view.clipboard)

    look_at(run, body)

    assert copied[0].startswith("TraceML · test · running")


def test_a_resize_is_followed(run: LiveRun) -> None:
    async def body(view: LiveView, pilot: Pilot[None]) -> None:
        for size in ((80, 24), (200, 50), (20, 5), (100, 30)):
            await pilot.resize_terminal(*size)
            await pilot.pause(0.1)
        assert view.query_one("#keys").region.y == 29

    assert "epoch 100%" in "\n".join(rows(look_at(run, body)))


@pytest.mark.parametrize("key", ["q", "ctrl+c", "ctrl+q"])
def test_an_attached_view_closes_and_touches_nothing(run: LiveRun, key: str) -> None:
    async def body(view: LiveView, pilot: Pilot[None]) -> None:
        await pilot.press(key)
        await pilot.pause()
        assert not view.is_running

    look_at(run, body)


def test_a_run_whose_collector_is_gone_says_so(run: LiveRun, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = Source(run.folder).manifest._replace(launcher_birth="another boot")
    manifest.write(run.folder)
    monkeypatch.setattr("traceml_ai.live.source._STALE_S", 0.2)

    async def body(_view: LiveView, pilot: Pilot[None]) -> None:
        await pilot.pause(1.2)

    assert "the collector is gone: these figures are old" in "\n".join(rows(look_at(run, body)))


def test_a_run_without_any_figures_yet_can_be_looked_at(tmp_path: Path) -> None:
    text = "\n".join(rows(look_at(LiveRun(tmp_path), nothing)))

    assert "waiting for the first figures" in text


def test_a_name_that_would_steer_the_terminal_is_harmless(tmp_path: Path) -> None:
    run = LiveRun(tmp_path)
    Source(run.folder).manifest._replace(name="a\x1b[2Jb[red]").write(run.folder)

    assert "a?[2Jb[red]" in "\n".join(rows(look_at(run, nothing)))


@pytest.mark.parametrize(
    ("key", "character", "sent"),
    [
        ("a", "a", b"a"),
        ("A", "A", b"A"),
        ("enter", "\r", b"\r"),
        ("ctrl+c", "\x03", b"\x03"),
        ("ctrl+z", None, b"\x1a"),
        ("backspace", "\x7f", b"\x7f"),
        ("up", None, b"\x1b[A"),
        ("question_mark", "?", b"?"),
        ("é", "é", "é".encode()),
        ("alt+b", None, b"\x1bb"),
        ("f13", None, b""),
    ],
)
def test_a_key_is_sent_as_a_terminal_sends_it(key: str, character: str | None, sent: bytes) -> None:
    assert to_bytes(key, character) == sent


def test_small_pictures_hold_their_width_and_lose_no_spike() -> None:
    values = [1.0] * 500 + [50.0] + [1.0] * 500

    assert max(value or 0 for value in fold(values, 40)) == 50.0
    assert spark(values, 40, Look()).count("█") == 1
    assert [len(row) for row in column_chart(values, 40, 3, Look())] == [40] * 3
    assert spark([None, 0.0, 2.0], 40, Look()) == " ▁█"
    assert {warmth for _, warmth in heat([5.0] * 9, 40, Look())} == {0.0}
