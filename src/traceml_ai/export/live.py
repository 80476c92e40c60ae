"""Metrics of a run while it goes on, from the collector's process; the training one knows nothing of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Protocol
from urllib.parse import urlsplit

from traceml_ai.collect.collector import Collector
from traceml_ai.collect.notes import Notes
from traceml_ai.errors import UsageError
from traceml_ai.export.reading import Reading
from traceml_ai.export.steps import newest_of_each_rank, rank_steps
from traceml_ai.spool.runfolder import Manifest

LOOPBACK = "127.0.0.1"
_LARGEST_PORT = 65_535


class Metrics(Protocol):
    """One place where metrics go."""

    def show(self, reading: Reading) -> None:
        """Make a reading the one that is served or sent next; returns at once."""

    def close(self) -> None:
        """Hand out the last reading, and end; takes two seconds at the most."""


def reading_of(manifest: Manifest, collector: Collector) -> Reading:
    """Return what a collector knows now."""
    now_ns = time.time_ns()
    latest = collector.latest
    return Reading(
        run=manifest.name,
        started_ns=now_ns - (time.perf_counter_ns() - manifest.start_ns),
        taken_ns=now_ns,
        ranks=newest_of_each_rank(rank_steps(collector.inputs())),
        samples=collector.newest_samples(),
        diagnosis=latest.diagnosis if latest else None,
    )


def start_metrics(
    run: str, *, otlp: str | None, prometheus: str | None, notes: Notes, say: Callable[[str], None]
) -> list[Metrics]:
    """Open what was asked for; what can't be opened is said, and costs nothing else."""
    opened: list[Metrics] = []
    if prometheus:
        from traceml_ai.export.prometheus import PrometheusEndpoint

        address, port = listen_address(prometheus)
        try:
            endpoint = PrometheusEndpoint(address, port)
        except OSError as error:
            reason = error.strerror or error
            notes.add("prometheus", f"no Prometheus endpoint on {address}:{port} ({reason})", aloud=True)
        else:
            say(f"metrics at http://{endpoint.address}/metrics")
            opened.append(endpoint)
    if otlp:
        from traceml_ai.export.otlp import OtlpSender

        opened.append(OtlpSender(metrics_url(otlp), run, notes))
    return opened


def need_otlp(endpoint: str) -> None:
    """Refuse an endpoint that is none, and say what is not installed.

    Raises:
        UsageError: One of the two.
    """
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.exporter.otlp.proto.http") is None:
        raise UsageError('--otlp needs OpenTelemetry: pip install "traceml-ai[otlp]"')
    metrics_url(endpoint)


def need_prometheus(where: str) -> None:
    """Refuse an address that is none, and say what is not installed.

    Raises:
        UsageError: One of the two.
    """
    if find_spec("prometheus_client") is None:
        raise UsageError('--prometheus needs prometheus-client: pip install "traceml-ai[prometheus]"')
    listen_address(where)


def metrics_url(endpoint: str) -> str:
    """Return where metrics are posted to, given an endpoint with or without a path.

    Raises:
        UsageError: It is no address of a web server.
    """
    parts = urlsplit(endpoint)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise UsageError(f"--otlp {endpoint!r} is no URL: name one such as http://localhost:4318")
    return endpoint if parts.path.strip("/") else f"{endpoint.rstrip('/')}/v1/metrics"


def listen_address(where: str) -> tuple[str, int]:
    """Return address and port; the address is this machine's own unless another is named.

    Raises:
        UsageError: It is neither PORT nor ADDRESS:PORT.
    """
    address, _, port = where.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) <= _LARGEST_PORT):
        raise UsageError(f"--prometheus {where!r} is neither PORT nor ADDRESS:PORT")
    return address.strip("[]") or LOOPBACK, int(port)
