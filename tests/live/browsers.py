"""Somebody looks at a page that changes: several tabs of headless Chromium over a while."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tornado.websocket import websocket_connect

from report_html.browser import PATIENCE_S, chromium, needs_browser
from report_html.browser import Tab as RawTab

__all__ = ["PATIENCE_S", "Tab", "browse", "needs_browser"]

T = TypeVar("T")


class Tab:
    """One open page."""

    def __init__(self, tab: RawTab) -> None:
        self._tab = tab

    @property
    def errors(self) -> list[str]:
        """What the page complained about."""
        return self._tab.errors

    @property
    def requests(self) -> list[str]:
        """What was asked for over the network."""
        return self._tab.requests

    async def ask(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        return await self._tab.evaluate(expression)

    async def text(self) -> str:
        """Bring it to the front and return all its words, those inside its components too."""
        await self._tab.call("Page.bringToFront")  # a page behind another one does not draw
        return str(await self.ask(_TEXT))

    async def until(self, what: str, patience_s: float = PATIENCE_S) -> str:
        """Wait until the page shows some words."""
        until = time.monotonic() + patience_s
        while what not in (text := await self.text()):
            assert time.monotonic() < until, f"not seen: {what!r} in {text!r}"
            await asyncio.sleep(0.1)
        return text

    async def picture(self) -> bytes:
        """Return the whole page as PNG."""
        shot = await self._tab.call("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(shot["data"])


Open = Callable[[str], Awaitable[Tab]]


def browse(visit: Callable[[Open], Awaitable[T]], *, width: int = 1300, height: int = 900) -> T:
    """Run a visit with a browser; `open(url)` opens a tab."""
    with chromium() as devtools:
        return asyncio.run(asyncio.wait_for(_visit(devtools, visit, width, height), 3 * PATIENCE_S))


async def _visit(devtools: str, visit: Callable[[Open], Awaitable[T]], width: int, height: int) -> T:
    tabs: list[tuple[RawTab, Any]] = []

    async def open_tab(url: str) -> Tab:
        connection = await websocket_connect(devtools, max_message_size=1 << 28)
        tab = RawTab(connection)
        tabs.append((tab, connection))
        await tab.open()
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await tab.call("Emulation.setDeviceMetricsOverride", **size)
        await tab.call("Page.navigate", url=url)
        await tab.loaded()
        return Tab(tab)

    try:
        return await visit(open_tab)
    finally:
        for tab, connection in tabs:
            await tab.close()
            connection.close()
            while await connection.read_message() is not None:
                pass


_TEXT = """(() => { const words = (node) => {
  if (node.nodeType === Node.TEXT_NODE) return node.textContent;
  if (["STYLE", "SCRIPT"].includes(node.nodeName)) return "";
  if (node.nodeType === Node.ELEMENT_NODE && getComputedStyle(node).display === "none") return "";
  return [...(node.shadowRoot ? node.shadowRoot.childNodes : []), ...node.childNodes].map(words).join(" ");
}; return words(document.body).replace(/\\s+/g, " "); })()"""
