"""The lines of the card below the table: where the rest of the time went, rates, memory, cost."""

from __future__ import annotations

from typing import NamedTuple

from traceml_ai.report.text import NOT_AVAILABLE, apportion, millis, number, size
from traceml_ai.report.words import CAUSE_WORDS
from traceml_ai.schema.summary import StepMemorySection, Summary, TimeSection


class _Unit(NamedTuple):
    """How a run of at least so many seconds is split up."""

    least_s: float
    scale_s: float
    name: str
    decimals: int = 1


_UNITS = (_Unit(3 * 3600, 3600, "h"), _Unit(600, 60, "min"), _Unit(10, 1, "s"), _Unit(0, 1, "s", 2))
_SHOWN_PART = 0.01  # of all time between steps; a smaller cause is not worth its words
_SHOWN_MS = 0.0005  # a step
_SHOWN_S = 0.0005  # of the run


def between_line(summary: Summary) -> str:
    """Time between steps: a step's average, its share of the loop, and the causes over the run."""
    stats = summary.step_time.phases.get("between_steps")
    causes = _causes(summary.time)
    if stats is None or stats.mean_ms is None:
        return f"Between steps: {causes or NOT_AVAILABLE}"
    share = "" if stats.loop_share_pct is None else f", {stats.loop_share_pct:.1f} % of the loop"
    return f"Between steps: {millis(stats.mean_ms)} a step{share}" + (f": {causes}" if causes else "")


def _causes(time: TimeSection) -> str:
    causes = time.between_by_cause
    known = {field.removesuffix("_s"): getattr(causes, field) or 0.0 for field in causes.__struct_fields__}
    shown = [name for name, s in known.items() if s > 0 and s >= _SHOWN_PART * sum(known.values())]
    ordered = sorted(shown, key=lambda name: known[name], reverse=True)
    return ", ".join(f"{CAUSE_WORDS.get(name, name)} {number(known[name])} s" for name in ordered)


def residual_line(summary: Summary) -> str | None:
    """What is known of the residual; ``None`` when nothing is."""
    causes = summary.step_time.residual_by_cause
    known = {k: ms for k, ms in causes.items() if k != "other" and ms is not None and ms >= _SHOWN_MS}
    if not known:
        return None
    return "Residual holds: " + ", ".join(f"{name} {millis(ms)} a step" for name, ms in known.items())


def handlers_line(summary: Summary) -> str | None:
    """The framework's handlers that took most between steps; ``None`` when none was seen."""
    named = [(name, s) for name, s in summary.time.handlers.items() if s >= _SHOWN_S][:3]
    if not named:
        return None
    return "Handlers between steps: " + ", ".join(f"{name} {number(s)} s" for name, s in named)


def coverage_line(summary: Summary) -> str | None:
    """Phases that only some steps had; ``None`` when there are none. Means are of the steps that had it."""
    partial = {
        name: stats.coverage
        for name, stats in summary.step_time.phases.items()
        if stats.coverage is not None and 0 < stats.coverage < 0.995  # noqa: PLR2004  shows as 100 %
    }
    if not partial:
        return None
    return "In part of the steps: " + ", ".join(f"{name} {100 * c:.0f} %" for name, c in partial.items())


def run_line(summary: Summary) -> str:
    """Every second of the run."""
    time = summary.time
    parts = (time.startup_s, time.steps_s, time.between_steps_s, time.shutdown_s)
    known = [part for part in parts if part is not None]
    if time.total_s is None or len(known) < len(parts):
        return f"Run: {NOT_AVAILABLE if time.total_s is None else number(time.total_s) + ' s'}"
    unit = next(unit for unit in _UNITS if time.total_s >= unit.least_s)
    shown = apportion([part / unit.scale_s for part in known], unit.decimals)
    names = ("start-up", "steps", "between", "shut-down")
    split = " + ".join(f"{name} {value:,.{unit.decimals}f}" for name, value in zip(names, shown, strict=True))
    return f"Run: {sum(shown):,.{unit.decimals}f} {unit.name} = {split}"


def rate_line(summary: Summary) -> str:
    """Throughput over the steady part of the run, and the processors it kept busy."""
    rates = summary.throughput
    tokens = "" if rates.tokens_per_sec is None else f", {number(rates.tokens_per_sec)} tokens/s"
    return (
        f"Throughput: {number(rates.samples_per_sec)} samples/s{tokens}, "
        f"{number(rates.steps_per_sec)} steps/s · CPU: {_cpu(summary)}"
    )


def _cpu(summary: Summary) -> str:
    process = summary.process
    busy = [cores for cores in (process.main_cpu_cores, process.workers_cpu_cores) if cores is not None]
    if not busy:
        return NOT_AVAILABLE
    usable = "" if process.usable_cpus is None else f" of {process.usable_cpus:g} usable"
    return f"{number(sum(busy), 2)}{usable} busy"


def memory_line(summary: Summary) -> str:
    """Host memory of the main process and its workers, device memory of a step."""
    process, device = summary.process, summary.step_memory
    limit = "" if process.memory_limit_bytes is None else f", limit {size(process.memory_limit_bytes)}"
    workers = "no workers" if process.workers == 0 else f"workers {size(process.workers_pss_peak_bytes)}"
    return (
        f"Peak memory: main process {size(process.main_rss_peak_bytes)}, {workers}, "
        f"device {_device_memory(device)}{limit}"
    )


def _device_memory(device: StepMemorySection) -> str:
    if device.peak_allocated_bytes is None and device.peak_reserved_bytes is None:
        return NOT_AVAILABLE
    return f"{size(device.peak_allocated_bytes)} allocated, {size(device.peak_reserved_bytes)} reserved"


def cost_line(summary: Summary) -> str:
    """What measuring cost the training."""
    cost = summary.overhead
    each = NOT_AVAILABLE if cost.us_per_step is None else f"{number(cost.us_per_step)} µs a step"
    share = "" if cost.share_pct is None else f" ({number(cost.share_pct, 2)} % of the loop)"
    once = "" if cost.attach_ms is None else f", {millis(cost.attach_ms)} at the start"
    return f"Measuring cost: {each}{share}{once}"


OPTIONAL = (residual_line, coverage_line, handlers_line)
LINES = (between_line, run_line, rate_line, memory_line, cost_line)
