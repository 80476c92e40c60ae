"""Metrics of a run that goes on: what they hold, scraped by Prometheus, received over OTLP."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client.parser import text_string_to_metric_families

from fakes import SECOND, SEEN, Header, Run, sample
from traceml_ai.collect.notes import Notes
from traceml_ai.errors import UsageError
from traceml_ai.export.live import listen_address, metrics_url, start_metrics
from traceml_ai.export.otlp import OtlpSender
from traceml_ai.export.prometheus import PrometheusEndpoint, prometheus_name
from traceml_ai.export.reading import BOUNDS_S, Distribution, Reading, metrics_of
from traceml_ai.export.steps import newest_of_each_rank, rank_steps
from traceml_ai.schema.step import Observed
from traceml_ai.schema.summary import Finding

PROMETHEUS = shutil.which("prometheus")
PATIENCE_S = 20


def reading(*runs: Run, name: str = "base", samples: int = 1) -> Reading:
    ranks = rank_steps([run.rank(header=Header(pid=100 + at, rank=at)) for at, run in enumerate(runs)])
    return Reading(
        run=name,
        started_ns=1_700_000_000 * SECOND,
        taken_ns=1_700_000_010 * SECOND,
        ranks=ranks,
        samples=[sample(9 * SECOND)] * samples,
        diagnosis=None,
    )


def figures(found: Reading) -> dict[str, dict[tuple[str, ...], Any]]:
    """Metric name to attribute values to figure."""
    return {
        metric.name: {tuple(point.attributes.values()): point.value for point in metric.points}
        for metric in metrics_of(found)
    }


# --- what they hold ------------------------------------------------------------------------------


def test_times_and_counts_are_those_of_the_run() -> None:
    found = figures(reading(Run().steps(200), Run().steps(100)))
    assert found["traceml.steps"] == {("0",): 200, ("1",): 100}
    assert found["traceml.samples"]["0",] == 1600
    assert found["traceml.phase.time"]["0", "forward"] == pytest.approx(200 * 0.003, rel=0.02)


def test_what_was_not_measured_is_absent_and_not_zero() -> None:
    found = figures(reading(Run().steps(50)))
    assert ("0", "h2d") not in found["traceml.phase.time"]
    assert "traceml.device.phase.time" not in found
    assert "traceml.device.memory.peak" not in found
    assert "traceml.tokens" not in found


def test_a_device_has_its_own_times_and_its_memory() -> None:
    device: dict[str, Any] = {"dev_forward": 30.0, "dev_step": 33.0}
    run = Run().steps(
        50,
        observed=SEEN | Observed.DEVICE | Observed.MEMORY,
        counts={"peak_allocated_bytes": 1 << 30},
        **device,
    )
    found = figures(reading(run))
    assert found["traceml.device.phase.time"]["0", "forward"] == pytest.approx(1.5, rel=0.02)
    assert found["traceml.device.memory.peak"]["0", "allocated"] == 1 << 30


def test_the_distribution_of_step_time_counts_every_step_once() -> None:
    found = figures(reading(Run().steps(300)))["traceml.step.duration"]["0",]
    assert isinstance(found, Distribution)
    assert len(found.counts) == len(BOUNDS_S) + 1
    assert sum(found.counts) == 300
    assert found.counts[BOUNDS_S.index(0.02)] > 200  # a step takes 10.1 ms
    assert found.total_s == pytest.approx(300 * 0.0101, rel=0.05)


def test_a_restarted_job_has_one_figure_a_rank(endpoint: PrometheusEndpoint) -> None:
    ranks = rank_steps([Run().steps(n).rank(header=Header(pid=n, rank=0)) for n in (30, 20)])
    endpoint.show(reading()._replace(ranks=newest_of_each_rank(ranks)))
    lines = [line for line in scrape(endpoint).splitlines() if line.startswith("traceml_steps_total")]
    assert len(lines) == 1


def test_before_the_first_step_there_are_processes_only() -> None:
    found = figures(reading())
    assert set(found) == {
        "traceml.process.memory", "traceml.process.cpu.time", "traceml.loader.workers",
        "traceml.host.cpu.utilization", "traceml.host.memory.used",
    }  # fmt: skip


def test_nothing_known_is_no_metric() -> None:
    assert metrics_of(reading(samples=0)) == []


# --- where to ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "address"),
    [("9090", ("127.0.0.1", 9090)), ("0.0.0.0:0", ("0.0.0.0", 0)), ("[::1]:80", ("::1", 80))],
)
def test_a_port_alone_is_on_the_loopback_address(where: str, address: tuple[str, int]) -> None:
    assert listen_address(where) == address


@pytest.mark.parametrize("where", ["", "x", "1.2.3.4:", ":", "70000", "-1", "٣"])
def test_what_is_no_port_is_refused_with_one_line(where: str) -> None:
    with pytest.raises(UsageError, match="neither PORT nor ADDRESS:PORT"):
        listen_address(where)


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://localhost:4318", "http://localhost:4318/v1/metrics"),
        ("http://localhost:4318/", "http://localhost:4318/v1/metrics"),
        ("https://otel.example/own/path", "https://otel.example/own/path"),
    ],
)
def test_an_endpoint_without_a_path_gets_the_usual_one(endpoint: str, url: str) -> None:
    assert metrics_url(endpoint) == url


@pytest.mark.parametrize("endpoint", ["localhost:4318", "4318", "", "file:///etc/passwd"])
def test_an_endpoint_that_is_none_is_refused_with_one_line(endpoint: str) -> None:
    with pytest.raises(UsageError, match="is no URL"):
        metrics_url(endpoint)


# --- Prometheus ----------------------------------------------------------------------------------


@pytest.fixture
def endpoint() -> Iterator[PrometheusEndpoint]:
    opened = PrometheusEndpoint("127.0.0.1", 0)
    yield opened
    opened.close()


def scrape(endpoint: PrometheusEndpoint) -> str:
    with urllib.request.urlopen(f"http://{endpoint.address}/metrics", timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())


def test_a_scrape_gives_the_newest_reading(endpoint: PrometheusEndpoint) -> None:
    assert scrape(endpoint) == ""
    endpoint.show(reading(Run().steps(100)))
    endpoint.show(reading(Run().steps(200)))
    samples = {
        (each.name, each.labels.get("phase")): each.value
        for family in text_string_to_metric_families(scrape(endpoint))
        for each in family.samples
    }
    assert samples["traceml_steps_total", None] == 200
    assert samples["traceml_phase_time_seconds_total", "backward"] == pytest.approx(1.0, rel=0.02)
    assert samples["traceml_step_duration_seconds_count", None] == 200


def test_a_runs_name_is_a_label_whatever_it_is(endpoint: PrometheusEndpoint) -> None:
    name = 'quote " backslash \\ line\nfeed {} ünïcode'
    endpoint.show(reading(Run().steps(5), name=name))
    families = text_string_to_metric_families(scrape(endpoint))
    assert {each.labels["run"] for family in families for each in family.samples} == {name}


def test_it_listens_on_the_loopback_address_only(endpoint: PrometheusEndpoint) -> None:
    assert endpoint.address.startswith("127.0.0.1:")


def test_a_port_that_is_taken_costs_the_run_nothing() -> None:
    notes = Notes()
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        opened = start_metrics("base", otlp=None, prometheus=port, notes=notes, say=said.append)
    assert opened == []
    assert f"no Prometheus endpoint on 127.0.0.1:{port}" in notes.messages()[0]


@pytest.mark.skipif(PROMETHEUS is None, reason="no Prometheus here: apt-get install prometheus")
def test_a_real_prometheus_scrapes_it(endpoint: PrometheusEndpoint, tmp_path: Path) -> None:
    endpoint.show(reading(Run().steps(200)))
    port = free_port()
    (tmp_path / "prometheus.yml").write_text(
        f"scrape_configs: [{{job_name: traceml, scrape_interval: 200ms, scrape_timeout: 200ms, "
        f"static_configs: [{{targets: ['{endpoint.address}']}}]}}]"
    )
    server = subprocess.Popen(
        [
            str(PROMETHEUS),
            f"--config.file={tmp_path}/prometheus.yml",
            f"--storage.tsdb.path={tmp_path}/data",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        share = (
            'sum by (phase) (traceml_phase_time_seconds_total{run="base"}) '
            '/ scalar(sum(traceml_phase_time_seconds_total{run="base"}))'
        )
        shares = {each["metric"]["phase"]: float(each["value"][1]) for each in query(port, share)}
        assert shares["backward"] == pytest.approx(5.0 / 10.1, rel=0.05)
        p50 = query(port, "histogram_quantile(0.5, traceml_step_duration_seconds_bucket)")
        assert 0.01 < float(p50[0]["value"][1]) < 0.02
        for expression in dashboard_expressions():
            query(port, expression, empty_is_fine=True)
    finally:
        server.terminate()
        server.wait(PATIENCE_S)


def dashboard_expressions() -> list[str]:
    """Every query of the Grafana dashboard that the documentation offers."""
    path = Path(__file__).parents[2] / "docs" / "grafana" / "traceml.json"
    panels = json.loads(path.read_text(encoding="utf-8"))["panels"]
    found = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    assert len(found) > 5
    return [expr.replace("$run", ".*").replace("$__rate_interval", "1m") for expr in found]


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    device: dict[str, Any] = {"dev_forward": 1.0, "dev_step": 2.0, "between_validation": 1.0}
    seen = SEEN | Observed.DEVICE | Observed.MEMORY | Observed.TOKENS
    run = Run().steps(50, observed=seen, counts={"peak_allocated_bytes": 1, "tokens": 9}, **device)
    finding = Finding(kind="BALANCED", severity="info", section="step_time", why="w", next="n")
    known = {prometheus_name(metric) for metric in metrics_of(reading(run)._replace(diagnosis=finding))}
    for expression in dashboard_expressions():
        for name in re.findall(r"traceml_\w+", expression):
            assert re.sub("_(bucket|sum|count)$", "", name) in known


def query(port: int, expression: str, *, empty_is_fine: bool = False) -> list[dict[str, Any]]:
    """Ask Prometheus until it has scraped something."""
    url = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            with error:
                if error.code < 500:  # a query that is wrong stays wrong
                    raise
            found = []
        except OSError:  # it does not listen yet
            found = []
        if found or empty_is_fine:
            return found
        time.sleep(0.1)
    raise AssertionError(f"no answer to {expression}")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


# --- OpenTelemetry -------------------------------------------------------------------------------


class Receiver(ThreadingHTTPServer):
    """What an OpenTelemetry collector's HTTP receiver does: takes requests, answers that they were taken."""

    daemon_threads = True

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.requests: list[ExportMetricsServiceRequest] = []
        super().__init__(("127.0.0.1", 0), _Handler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        request = ExportMetricsServiceRequest()
        request.ParseFromString(body)
        self.server.paths.append(self.path)
        self.server.requests.append(request)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    opened = Receiver()
    yield opened
    opened.stop()


def sent(receiver: Receiver, found: Reading) -> ExportMetricsServiceRequest:
    sender = OtlpSender(metrics_url(receiver.url), found.run, Notes(), every_s=60)
    sender.show(found)
    sender.close()
    assert receiver.paths == ["/v1/metrics"]
    return receiver.requests[0]


def test_the_last_reading_is_sent_at_the_end(receiver: Receiver) -> None:
    request = sent(receiver, reading(Run().steps(200)))
    (resource,) = request.resource_metrics
    attributes = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert (attributes["service.name"], attributes["traceml.run.name"]) == ("traceml", "base")
    metrics = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
    steps = metrics["traceml.steps"].sum
    assert steps.is_monotonic
    assert [point.as_double for point in steps.data_points] == [200]
    assert steps.data_points[0].start_time_unix_nano == 1_700_000_000 * SECOND


def test_phases_are_attributes_and_units_are_named(receiver: Receiver) -> None:
    request = sent(receiver, reading(Run().steps(200)))
    metrics = {metric.name: metric for metric in request.resource_metrics[0].scope_metrics[0].metrics}
    assert metrics["traceml.phase.time"].unit == "s"
    points = {
        tuple(each.value.string_value for each in point.attributes): point.as_double
        for point in metrics["traceml.phase.time"].sum.data_points
    }
    assert points["0", "backward"] == pytest.approx(1.0, rel=0.02)


def test_step_time_is_a_histogram_whose_extremes_are_left_out(receiver: Receiver) -> None:
    request = sent(receiver, reading(Run().steps(200)))
    metrics = {metric.name: metric for metric in request.resource_metrics[0].scope_metrics[0].metrics}
    (point,) = metrics["traceml.step.duration"].histogram.data_points
    assert (point.count, sum(point.bucket_counts)) == (200, 200)
    assert len(point.explicit_bounds) == len(BOUNDS_S)
    assert not point.HasField("min")


def test_readings_are_sent_while_the_run_goes_on(receiver: Receiver) -> None:
    sender = OtlpSender(metrics_url(receiver.url), "base", Notes(), every_s=0.05)
    sender.show(reading(Run().steps(20)))
    until = time.monotonic() + PATIENCE_S
    while len(receiver.requests) < 2 and time.monotonic() < until:
        time.sleep(0.02)
    sender.close()
    assert len(receiver.requests) >= 2


def test_nobody_there_is_said_once_and_holds_nothing_up() -> None:
    said: list[str] = []
    notes = Notes(said.append)
    url = f"http://127.0.0.1:{free_port()}/v1/metrics"
    sender = OtlpSender(url, "base", notes, every_s=0.05)
    sender.show(reading(Run().steps(5)))
    begin = time.monotonic()
    time.sleep(0.3)
    sender.close()
    assert time.monotonic() - begin < 8
    assert len(said) == 1
    assert url in said[0]
