"""An endpoint that Prometheus scrapes. Runs in the collector's process, on its own thread."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from traceml_ai.export.reading import BOUNDS_S, Distribution, Metric, Reading, metrics_of

_SUFFIXES = {"s": "_seconds", "By": "_bytes", "1": "_ratio"}


class PrometheusEndpoint(Collector):
    """Serves the newest reading at ``/metrics``.

    Args:
        address: What to listen on.
        port: 0: any that is free.

    Raises:
        OSError: The port is taken, or the address is not this machine's.
    """

    def __init__(self, address: str, port: int) -> None:
        self._reading: Reading | None = None
        registry = CollectorRegistry()
        registry.register(self)
        self._server, self._thread = start_http_server(port, address, registry)
        host = f"[{address}]" if ":" in address else address
        self.address = f"{host}:{self._server.server_port}"

    def show(self, reading: Reading) -> None:
        """Serve this reading from now on."""
        self._reading = reading

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(2)

    def collect(self) -> Iterator[Family]:
        """Answer a scrape (called by prometheus_client)."""
        reading = self._reading
        if reading is not None:
            for metric in metrics_of(reading):
                yield _family(metric, reading.run)


def prometheus_name(metric: Metric) -> str:
    """Return a metric's name as Prometheus has them: with the unit, and ``_total`` on counters.

    Source: OpenTelemetry, "Prometheus and OpenMetrics Compatibility".
    """
    name = metric.name.replace(".", "_") + _SUFFIXES.get(metric.unit, "")
    return name + "_total" if metric.kind == "counter" else name


def _family(metric: Metric, run: str) -> Family:
    labels = ["run", *sorted({key for point in metric.points for key in point.attributes})]
    name = prometheus_name(metric)
    if metric.kind == "histogram":
        return _histogram(HistogramMetricFamily(name, metric.help, labels=labels), metric, run)
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(name, metric.help, labels=labels)
    for point in metric.points:
        assert isinstance(point.value, float)
        family.add_metric([run, *(point.attributes.get(key, "") for key in labels[1:])], point.value)
    return family


def _histogram(family: HistogramMetricFamily, metric: Metric, run: str) -> Family:
    for point in metric.points:
        assert isinstance(point.value, Distribution)
        buckets, total = [], 0
        for bound, count in zip([*map(str, BOUNDS_S), "+Inf"], point.value.counts, strict=True):
            total += count
            buckets.append((bound, float(total)))
        values = [run, *(point.attributes[key] for key in sorted(point.attributes))]
        family.add_metric(values, buckets, point.value.total_s)
    return family
