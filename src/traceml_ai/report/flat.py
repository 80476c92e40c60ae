"""The main numbers of a summary under flat names, as experiment trackers take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["flatten"]

_FIELDS: dict[str, tuple[str, ...]] = {
    "run": ("steps", "updates", "microbatches"),
    "step_time": (
        "step_ms",
        "median_step_ms",
        "p95_step_ms",
        "dataloader_pct",
        "h2d_pct",
        "forward_pct",
        "backward_pct",
        "optimizer_pct",
        "residual_pct",
    ),
    "step_memory": ("peak_allocated_bytes", "peak_reserved_bytes"),
    "throughput": ("samples_per_sec", "tokens_per_sec", "updates_per_sec", "steps_per_sec"),
    "process": ("cpu_pct", "main_rss_bytes", "workers_pss_bytes"),
}
_DIAGNOSES = ("step_time", "step_memory", "process", "system")


def flatten(summary: Mapping[str, Any]) -> dict[str, float | str]:
    """Pick the main numbers out of a summary.

    Args:
        summary: A summary with the keys of ``final_summary.json``.

    Returns:
        ``traceml/<field>`` to numbers, ``traceml/<section>_diagnosis`` to kinds, ``traceml/diagnosis`` to the
        primary finding's kind. What was not measured is absent.
    """
    flat: dict[str, float | str | None] = {
        f"traceml/{field}": summary[section].get(field)
        for section, fields in _FIELDS.items()
        for field in fields
    }
    flat |= {f"traceml/{section}_diagnosis": summary[section]["diagnosis"] for section in _DIAGNOSES}
    flat["traceml/diagnosis"] = summary["diagnosis"]["kind"]
    flat["traceml/overhead_us_per_step"] = summary["overhead"].get("us_per_step")
    return {name: value for name, value in flat.items() if value is not None}
