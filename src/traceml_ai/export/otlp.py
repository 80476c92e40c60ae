"""Sends metrics to an OpenTelemetry collector (OTLP over HTTP), from a thread of the collector's process."""

from __future__ import annotations

import logging
import socket
import threading
from typing import cast

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as OtelMetric
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

import traceml_ai
from traceml_ai.collect.notes import Notes
from traceml_ai.export.reading import BOUNDS_S, Distribution, Metric, Point, Reading, metrics_of

EVERY_S = 5.0
_PATIENCE_S = 2.0
_CUMULATIVE = AggregationTemporality.CUMULATIVE


class OtlpSender:
    """Posts the newest reading every few seconds, and once at the end.

    Headers and certificates are taken from OpenTelemetry's own environment variables.

    Args:
        url: Where to.
        run: The run's name.
        notes: For a receiver that can't be reached.
        every_s: Seconds between two posts.
    """

    def __init__(self, url: str, run: str, notes: Notes, *, every_s: float = EVERY_S) -> None:
        # A receiver that is away is said once, by us, not with a traceback every five seconds.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._url, self._notes, self._every_s = url, notes, every_s
        self._exporter = OTLPMetricExporter(endpoint=url, timeout=_PATIENCE_S)
        self._resource = Resource.create(
            {"service.name": "traceml", "traceml.run.name": run, "host.name": socket.gethostname()}
        )
        self._reading: Reading | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send_all, name="traceml-otlp", daemon=True)
        self._thread.start()

    def show(self, reading: Reading) -> None:
        """Send this reading next."""
        self._reading = reading

    def close(self) -> None:
        """Send the last reading, if the receiver takes it in time."""
        self._over.set()
        self._thread.join(2 * _PATIENCE_S)

    def _send_all(self) -> None:
        while not self._over.wait(self._every_s):
            self._send()
        self._send()

    def _send(self) -> None:
        reading = self._reading
        if reading is None:
            return
        try:
            taken = self._exporter.export(data_of(reading, self._resource)) is MetricExportResult.SUCCESS
        except Exception as error:  # noqa: BLE001  the exporter's and the network's own; the run goes on
            self._notes.add("otlp", f"metrics can't be sent to {self._url} ({error})", aloud=True)
            return
        if not taken:
            self._notes.add("otlp", f"metrics can't be sent to {self._url}: nobody takes them", aloud=True)


def data_of(reading: Reading, resource: Resource) -> MetricsData:
    """Return a reading in OpenTelemetry's own structures."""
    scope = InstrumentationScope("traceml", traceml_ai.__version__)
    metrics = [_metric(metric, reading) for metric in metrics_of(reading)]
    return MetricsData(
        resource_metrics=[
            ResourceMetrics(
                resource=resource,
                scope_metrics=[ScopeMetrics(scope=scope, metrics=metrics, schema_url="")],
                schema_url="",
            )
        ]
    )


def _metric(metric: Metric, reading: Reading) -> OtelMetric:
    return OtelMetric(
        name=metric.name, description=metric.help, unit=metric.unit, data=_data(metric, reading)
    )


def _data(metric: Metric, reading: Reading) -> Sum | Gauge | Histogram:
    if metric.kind == "histogram":
        points = [_histogram_point(point, reading) for point in metric.points]
        return Histogram(data_points=points, aggregation_temporality=_CUMULATIVE)
    numbers = [_number(point, reading) for point in metric.points]
    if metric.kind == "gauge":
        return Gauge(data_points=numbers)
    return Sum(data_points=numbers, aggregation_temporality=_CUMULATIVE, is_monotonic=True)


def _attributes(point: Point) -> dict[str, str]:
    return {f"traceml.{key}": value for key, value in point.attributes.items()}


def _number(point: Point, reading: Reading) -> NumberDataPoint:
    assert isinstance(point.value, float)
    return NumberDataPoint(
        attributes=_attributes(point),
        start_time_unix_nano=reading.started_ns,
        time_unix_nano=reading.taken_ns,
        value=point.value,
    )


def _histogram_point(point: Point, reading: Reading) -> HistogramDataPoint:
    assert isinstance(point.value, Distribution)
    return HistogramDataPoint(
        attributes=_attributes(point),
        start_time_unix_nano=reading.started_ns,
        time_unix_nano=reading.taken_ns,
        count=sum(point.value.counts),
        sum=point.value.total_s,
        bucket_counts=point.value.counts,
        explicit_bounds=list(BOUNDS_S),
        min=cast("float", None),  # not known: left out of what is sent
        max=cast("float", None),
    )
