"""Takes the pictures of the live view and the dashboard in docs/pictures/ from a real run.

    python docs/pictures.py

Trains examples/digits.py under `traceml run` on a pseudo-terminal. While it trains, the view is attached
to it and written as SVG, and headless Chromium looks at its dashboard. Needs the dev extra and Chromium.
"""

from __future__ import annotations

import asyncio
import os
import pty
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PICTURES = HERE / "pictures"
EXAMPLE = HERE.parent / "examples" / "digits.py"
TRACEML = [sys.executable, "-m", "traceml_ai"]
COLUMNS, ROWS = 112, 36
WIDTH = 1300
SETTLE_S = 2.0
STEPS = 150  # then there is something to see, and half the run is still to come
PATIENCE_S = 120.0

_FONT_FROM_ELSEWHERE = re.compile(r"@font-face\s*{.*?}", re.DOTALL)


def main() -> int:
    """Take both pictures."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "logs" / "digits"
        process = start(Path(folder))
        try:
            wait_for(run / "run.json")
            asyncio.run(take_view(run))
            take_dashboard(run)
        finally:
            process.terminate()
            process.wait()
    return 0


def start(folder: Path) -> subprocess.Popen[bytes]:
    """Start the run on a terminal of its own."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*TRACEML, "run", "--mode", "cli", "--run-name", "digits", str(EXAMPLE)],
        cwd=folder,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm-256color"},
        start_new_session=True,
    )
    os.close(slave)
    threading.Thread(target=drain, args=(master,), daemon=True).start()
    return process


def drain(master: int) -> None:
    """Be the terminal: take what is written to it."""
    try:
        while os.read(master, 65536):
            pass
    except OSError:  # the run is over
        return


def wait_for(path: Path) -> None:
    """Wait until there is a file."""
    until = time.monotonic() + PATIENCE_S
    while not path.exists():
        if time.monotonic() > until:
            raise TimeoutError(f"{path} did not come")
        time.sleep(0.1)


async def take_view(run: Path) -> None:
    """Write the terminal view of a run as SVG, once it has trained a while."""
    from traceml_ai.live.source import Source
    from traceml_ai.live.terminal.app import LiveView
    from traceml_ai.live.terminal.look import Look

    until = time.monotonic() + PATIENCE_S
    source = Source(run)
    view = LiveView(source, look=Look())
    async with view.run_test(size=(COLUMNS, ROWS)) as pilot:
        while trained(source) < STEPS:
            if time.monotonic() > until:
                raise TimeoutError(f"{EXAMPLE} did not train {STEPS} steps in {PATIENCE_S:g} s")
            await pilot.pause(0.2)
        await pilot.pause(1.0)
        svg = view.export_screenshot(title="traceml run examples/digits.py")
    PICTURES.joinpath("overview.svg").write_text(_FONT_FROM_ELSEWHERE.sub("", svg))


def trained(source: object) -> int:
    """Return how many steps a run has closed."""
    snapshot = source.snapshot()  # type: ignore[attr-defined]  # a Source; its import takes a while
    return snapshot.now.steps if snapshot and snapshot.now and snapshot.summary else 0


def take_dashboard(run: Path) -> None:
    """Write the dashboard of a run as PNG."""
    sys.path.insert(0, str(HERE.parent / "tests"))
    from live.browsers import Open, browse

    server = subprocess.Popen(
        [*TRACEML, "attach", "--dashboard", "--no-dashboard-auto-open", str(run)],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr is not None
    address = server.stderr.readline().split()[-1]

    async def look(open_tab: Open) -> bytes:
        tab = await open_tab(address)
        await tab.until("Output")
        await asyncio.sleep(SETTLE_S)
        return await tab.picture()

    PICTURES.joinpath("dashboard.png").write_bytes(browse(look, width=WIDTH))
    server.terminate()
    server.wait()


if __name__ == "__main__":
    sys.exit(main())
