"""The dashboard: a real server over a run folder, real browsers in front of it."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

from launch.tool import TRACEML, script
from live.browsers import Open, browse, needs_browser
from live.runs import LiveRun
from live.terminals import User
from traceml_ai.live.dashboard import texts
from traceml_ai.live.dashboard.server import has_screen
from traceml_ai.live.screen import Screen

ATTACH = [*TRACEML, "attach", "--dashboard", "--no-dashboard-auto-open"]


class Served:
    """A dashboard's server process."""

    def __init__(self, run: LiveRun, *options: str) -> None:
        self._process = subprocess.Popen(
            [*ATTACH, *options, str(run.folder)], stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._process.stderr is not None
        self.said = self._process.stderr.readline() + self._process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/(\S+)", self.said)
        assert found is not None, self.said + self._process.stderr.read()
        self.url, self.port, self.token = found.group(), int(found[1]), found[2]

    def stop(self) -> int:
        """Stop it as a user would."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        code = self._process.wait(20)
        assert self._process.stderr is not None
        self._process.stderr.close()
        return code


@pytest.fixture
def run(tmp_path: Path) -> LiveRun:
    run = LiveRun(tmp_path, ranks=2, slow=1)
    run.output.write(b"start\r\n\x1b[31mred <b>\x1b[0m\r\n10%\r90%")
    run.train(300)
    run.analyse()
    run.publish()
    return run


@pytest.fixture
def served(run: LiveRun) -> Iterator[Served]:
    served = Served(run)
    yield served
    served.stop()


def status_of(url: str, **headers: str) -> int:
    try:
        with urlopen(Request(url, headers=headers), timeout=20) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


def test_only_the_printed_address_shows_anything(served: Served) -> None:
    base = f"http://127.0.0.1:{served.port}"

    assert len(served.token) >= 20
    assert status_of(served.url) == 200
    for path in (
        "/",
        "/wrong",
        f"/{served.token[:-1]}",
        f"/{served.token}x",
        "/ws",
        "/metadata",
        "/wrong/ws",
    ):
        assert status_of(base + path) in {404, 405}, path


def test_it_listens_on_the_loopback_address_alone(served: Served) -> None:
    listening = Path(f"/proc/{served._process.pid}/net/tcp")
    if not listening.exists():
        pytest.skip("this system has no /proc/net/tcp")
    lines = [line.split() for line in listening.read_text().splitlines()[1:]]
    addresses = {line[1] for line in lines if line[3] == "0A" and line[1].endswith(f":{served.port:04X}")}

    assert addresses == {f"0100007F:{served.port:04X}"}


def test_the_way_in_from_another_machine_is_said(served: Served) -> None:
    assert f"ssh -N -L {served.port}:127.0.0.1:{served.port} " in served.said


@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:1", "null"])
def test_a_websocket_from_another_origin_is_refused(served: Served, origin: str) -> None:
    async def connect() -> None:
        request = HTTPRequest(f"ws://127.0.0.1:{served.port}/{served.token}/ws", headers={"Origin": origin})
        await websocket_connect(request, subprotocols=["bokeh", "token"])

    with pytest.raises(HTTPClientError, match="403"):
        asyncio.run(connect())


def test_a_port_can_be_named_and_a_taken_one_is_said(run: LiveRun, served: Served) -> None:
    ended = subprocess.run(
        [*ATTACH, "--dashboard-port", str(served.port), str(run.folder)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip

    assert ended.returncode == 1
    assert ended.stderr == (
        f"traceml: can't listen on 127.0.0.1:{served.port} (Address already in use): "
        "choose another --dashboard-port\n"
    )


def test_what_a_run_says_is_shown_as_text(run: LiveRun) -> None:
    screen = Screen()
    screen.feed(b"<script>alert(1)</script>\x1b[38;2;1;2;3m&'\x1b[0m")

    assert texts.output(list(screen.lines)) == (
        "<div class='tail'><pre class='output'>&lt;script&gt;alert(1)&lt;/script&gt;"
        "<span style='color:#010203'>&amp;&#x27;</span></pre></div>"
    )
    assert "<img" not in texts.head(None, "<img src=x>")


def test_no_browser_is_opened_where_there_is_no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SSH_TTY"):
        monkeypatch.delenv(name, raising=False)
    if sys.platform == "linux":
        assert not has_screen()
        monkeypatch.setenv("DISPLAY", ":0")
    assert has_screen()
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 1 10.0.0.2 22")
    assert not has_screen()


@needs_browser
def test_the_page_keeps_itself_up_to_date_in_two_browsers_until_the_server_is_stopped(
    run: LiveRun, served: Served
) -> None:
    async def visit(open_tab: Open) -> None:
        first, second = await open_tab(served.url), await open_tab(served.url)
        for tab in (first, second):
            shown = await tab.until("Step time over the run")
            for part in (
                "300 steps",
                "2 ranks",
                "INPUT_BOUND",
                "Next",
                "What a step is made of",
                "red <b>",
                "90%",
            ):
                assert part in shown, part
            assert "10%" not in shown
            assert await tab.ask("Bokeh.documents[0].roots().length") == 5
        zoomed = await first.ask(ZOOM)
        run.train(700)
        run.output.write(b"\r\nnews")
        run.analyse()
        run.publish()
        for tab in (first, second):
            await tab.until("1,000 steps")
            await tab.until("news")
        assert await first.ask(RANGE) == zoomed
        assert (await second.ask(RANGE))[1] > zoomed[1]
        assert all(
            f"127.0.0.1:{served.port}/" in asked or asked.startswith("data:") for asked in first.requests
        )
        assert first.errors == second.errors == []
        assert await asyncio.to_thread(served.stop) == 0
        await first.until("The dashboard's server has ended")
        assert "1,000 steps" in await first.text()

    browse(visit)


@needs_browser
def test_a_page_over_a_real_run_changes_as_it_trains_and_stays_when_it_is_over(tmp_path: Path) -> None:
    script(tmp_path, TRAINING)
    command = [
        *TRACEML,
        "run",
        "--mode",
        "dashboard",
        "--no-dashboard-auto-open",
        "--run-name",
        "run",
        "train.py",
    ]
    user = User(command, tmp_path, columns=160)
    try:
        user.until("dashboard at http://")
        found = re.search(r"dashboard at (http://\S+)", user.text)
        assert found is not None

        async def visit(open_tab: Open) -> list[str]:
            tab = await open_tab(found[1])
            steps: list[str] = []
            until = time.monotonic() + 60
            while len(steps) < 3 and time.monotonic() < until:
                await asyncio.to_thread(user.read, 0.2)
                steps += [now for now in re.findall(r"running · ([\d,]+) steps", await tab.text())
                          if now not in steps]  # fmt: skip
            while "run failed" not in await tab.text() and time.monotonic() < until:
                await asyncio.to_thread(user.read, 0.2)
            assert "epoch 2" in await tab.until("run failed")
            assert tab.errors == []
            return steps

        assert len(browse(visit)) == 3
        user.until("the dashboard stays open: Ctrl-C stops it")
        assert status_of(found[1]) == 200
        user.type("\x03")
        assert user.end() == 3
    finally:
        user.close()
    assert "epoch 2" in user.scrolled
    assert json.loads((tmp_path / "logs/run/final_summary.json").read_bytes())["run"]["exit_code"] == 3


def test_without_a_terminal_the_dashboard_ends_with_the_run(tmp_path: Path) -> None:
    script(tmp_path, "print('mine'); raise SystemExit(4)")
    ended = subprocess.run(
        [*TRACEML, "run", "--mode", "dashboard", "--no-dashboard-auto-open", "train.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip

    assert (ended.returncode, ended.stdout) == (4, "mine\n")
    assert "\x1b" not in ended.stderr


def test_a_killed_launcher_takes_the_dashboard_with_it(tmp_path: Path) -> None:
    script(tmp_path, "import time; time.sleep(6)")
    process = subprocess.Popen(
        [*TRACEML, "run", "--mode", "dashboard", "--no-dashboard-auto-open", "train.py"],
        cwd=tmp_path, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    found = None
    while found is None:
        found = re.search(r"http://\S+", process.stderr.readline())
    process.kill()
    process.wait()
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            status_of(found.group())
        except OSError:
            break
        time.sleep(0.1)
    process.stderr.close()

    with pytest.raises(OSError, match="refused"):
        urlopen(found.group(), timeout=5)


RANGE = """(() => { const f = Bokeh.documents[0].get_model_by_name("charts").children
  .find((c) => c.name === "chart-timeline").children[1]; return [f.x_range.start, f.x_range.end]; })()"""
ZOOM = RANGE.replace("return", "f.x_range.setv({start: 100, end: 200}); return")
TRAINING = """
    import time, torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    class Data(Dataset):
        def __len__(self): return 150
        def __getitem__(self, i):
            time.sleep(0.001)
            return torch.randn(8), torch.randn(1)

    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for epoch in range(3):
        for x, y in DataLoader(Data(), batch_size=1):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            time.sleep(0.006)
        print("epoch", epoch, flush=True)
    raise SystemExit(3)
"""
