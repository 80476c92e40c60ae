"""Headless Chromium, driven over its DevTools protocol: what a page logs, asks for, shows."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from tornado.websocket import WebSocketClientConnection, websocket_connect

PATIENCE_S = 60
CHROMIUM = next(
    (p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None
)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # a page has no business elsewhere
    "--remote-debugging-port=0",
)
_DRAWN = """new Promise((done) => { const look = () => document.documentElement.dataset.drawn
  ? done(document.documentElement.dataset.drawn) : setTimeout(look, 20); look(); })"""


class Visit(NamedTuple):
    """What came of opening a page."""

    drawn: int  # charts
    errors: list[str]  # of the console, the scripts, the content-security policy
    requests: list[str]  # of anything but the page itself
    found: list[Any]  # what the asked expressions gave
    screenshot: bytes


@contextmanager
def chromium() -> Iterator[str]:
    """Start Chromium and yield the address of its DevTools."""
    assert CHROMIUM is not None
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [CHROMIUM, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            assert process.stderr is not None
            lines = iter(process.stderr.readline, "")
            yield next(m.group() for line in lines if (m := re.search(r"ws://\S+", line)))
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE_S)


def visit(
    devtools: str, page: Path, *, ask: Sequence[str] = (), dark: bool = False, width: int = 1100
) -> Visit:
    """Open a page from disk, wait until its charts are drawn, ask it a few expressions, look at it."""
    return asyncio.run(
        asyncio.wait_for(_visit(devtools, page.resolve().as_uri(), ask, dark=dark, width=width), PATIENCE_S)
    )


async def _visit(devtools: str, url: str, ask: Sequence[str], *, dark: bool, width: int) -> Visit:
    connection = await websocket_connect(devtools, max_message_size=1 << 28)
    tab = Tab(connection)
    try:
        await tab.open()
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await tab.call("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        await tab.call("Emulation.setDeviceMetricsOverride", **size)
        await tab.call("Page.navigate", url=url)
        await tab.loaded()
        drawn = await tab.evaluate(_DRAWN)
        found = [await tab.evaluate(expression) for expression in ask]
        shot = await tab.call("Page.captureScreenshot", captureBeyondViewport=True)
        # What is in the page itself (data:) is asked of nobody.
        requests = [asked for asked in tab.requests if asked != url and not asked.startswith("data:")]
        return Visit(int(drawn), tab.errors, requests, found, base64.b64decode(shot["data"]))
    finally:
        await tab.close()
        connection.close()
        while await connection.read_message() is not None:
            pass


class Tab:
    """One page of the browser."""

    def __init__(self, connection: WebSocketClientConnection) -> None:
        self._connection = connection
        self._number = 0
        self._session: str | None = None
        self._target: str | None = None
        self._loaded = False
        self.errors: list[str] = []
        self.requests: list[str] = []

    async def open(self) -> None:
        self._target = (await self.call("Target.createTarget", url="about:blank"))["targetId"]
        attached = await self.call("Target.attachToTarget", targetId=self._target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")

    async def close(self) -> None:
        self._session = None
        await self.call("Target.closeTarget", targetId=self._target)

    async def loaded(self) -> None:
        while not self._loaded:
            self._note(json.loads(await self._connection.read_message() or "{}"))

    async def evaluate(self, expression: str) -> Any:
        result = await self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def call(self, method: str, **params: Any) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        await self._connection.write_message(json.dumps(message))
        while True:
            answer = json.loads(await self._connection.read_message() or "{}")
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        method, params = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in {"error", "warning"}:
            self.errors.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in {"error", "warning", "assert"}:
            self.errors.append(json.dumps(params["args"]))
