"""What else a run is told to, when asked: a page, its steps in a file, metrics. Each fails alone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from traceml_ai.collect.notes import Guard, Notes
from traceml_ai.launch.say import say

if TYPE_CHECKING:
    from traceml_ai.collect.collector import Collector
    from traceml_ai.collect.publish import Publisher
    from traceml_ai.export.live import Metrics
    from traceml_ai.schema.summary import Summary
    from traceml_ai.spool.runfolder import Manifest


BUDGET = 0.02
"""Share of a core for bringing metrics up to date: those of very many ranks come more rarely."""


class Wanted(NamedTuple):
    """What the user asked for."""

    html_report: bool = False
    keep_steps: bool = True
    otlp: str | None = None  # where an OpenTelemetry collector listens
    prometheus: str | None = None  # PORT or ADDRESS:PORT to listen on


def check(wanted: Wanted) -> None:
    """Refuse what can't be done before anything is started.

    Raises:
        UsageError: A package is not installed, or an address is none.
    """
    if wanted.html_report:
        from traceml_ai.report.html import need_libraries

        need_libraries()
    if wanted.otlp:
        from traceml_ai.export.live import need_otlp

        need_otlp(wanted.otlp)
    if wanted.prometheus:
        from traceml_ai.export.live import need_prometheus

        need_prometheus(wanted.prometheus)


class Outlets:
    """Everything besides the summary and the card.

    Args:
        wanted: What the user asked for.
        manifest: What was started.
        collector: What is known of it.
        publisher: Where the run's files go.
        notes: For what goes wrong.
    """

    def __init__(
        self,
        wanted: Wanted,
        manifest: Manifest,
        collector: Collector,
        publisher: Publisher,
        notes: Notes,
    ) -> None:
        self._wanted = wanted
        self._manifest = manifest
        self._collector = collector
        self._publisher = publisher
        self._guard = Guard(notes)
        self._metrics: list[Metrics] = []
        self._due_s = 0.0
        if wanted.otlp or wanted.prometheus:
            self._metrics = self._guard("the metrics", self._start_metrics, notes) or []

    def tick(self) -> None:
        """Bring the metrics up to date: a few sums that the collector has anyway, within a budget."""
        if self._metrics and time.perf_counter() >= self._due_s:
            self._guard("the metrics", self._publish)

    def finish(self, summary: Summary) -> None:
        """Write the files that were asked for, and close the metrics with the run's last figures."""
        if self._wanted.keep_steps:
            self._guard("keeping the steps", self._keep_steps)
        if self._wanted.html_report:
            self._guard("the HTML report", self._write_report, summary)
        self._due_s = 0.0
        self.tick()
        for metrics in self._metrics:
            self._guard("the end of the metrics", metrics.close)

    def _start_metrics(self, notes: Notes) -> list[Metrics]:
        from traceml_ai.export.live import start_metrics

        run = self._manifest.name
        wanted = self._wanted
        return start_metrics(run, otlp=wanted.otlp, prometheus=wanted.prometheus, notes=notes, say=say)

    def _publish(self) -> None:
        from traceml_ai.export.live import reading_of

        begin_s = time.perf_counter()
        reading = reading_of(self._manifest, self._collector)
        for metrics in self._metrics:
            metrics.show(reading)
        end_s = time.perf_counter()
        self._due_s = end_s + (end_s - begin_s) / BUDGET

    def _keep_steps(self) -> None:
        from traceml_ai.export.steps import STEPS_FILE, encode_steps, kept_steps, rank_steps

        steps = kept_steps(rank_steps(self._collector.inputs()), self._manifest.start_ns)
        if len(steps.rows):
            self._publisher.write(STEPS_FILE, encode_steps(steps))

    def _write_report(self, summary: Summary) -> None:
        from traceml_ai.report.html import HTML_FILE, render_html

        path: Path | None = self._publisher.write(HTML_FILE, render_html(summary).encode())
        if path is not None:
            say(f"report: {path}")
