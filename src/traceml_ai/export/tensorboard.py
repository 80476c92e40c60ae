"""A run's summary in TensorBoard: figures as scalars, the card as text, report and JSON beside the events.

>>> from torch.utils.tensorboard import SummaryWriter
>>> from traceml_ai.export import tensorboard as traceml_tensorboard
>>> with SummaryWriter("runs/digits") as writer:  # doctest: +SKIP
...     train()
...     traceml_tensorboard.log(writer)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from traceml_ai.export import numbers
from traceml_ai.export.source import FOLDER, tell_of
from traceml_ai.schema.summary import Summary

__all__ = ["log"]


def log(writer: Any, source: Summary | str | Path | None = None, *, html: bool = True) -> bool:
    """Tell TensorBoard where the time of the steps went.

    TensorBoard keeps no files: JSON and report go into the folder ``traceml`` beside its events.

    Args:
        writer: A ``SummaryWriter``.
        source: Another run than this process's: a summary, or the path of a run folder or
            ``final_summary.json``.
        html: Write the HTML report too; needs ``traceml-ai[report]``.

    Returns:
        Whether there was anything to tell: False when this process is not measured.

    Raises:
        TraceMLError: The path leads to no summary.
    """
    told = tell_of(source, html=html)
    if told is None:
        return False
    last = told.summary.run.steps
    for name, value in numbers(told.flat).items():
        writer.add_scalar(name, value, last)
    series = told.summary.step_time.series
    for first, mean_ms in zip(series.first_step, series.mean_ms, strict=True):
        if mean_ms is not None:
            writer.add_scalar(f"{FOLDER}/over_the_run/step_ms", mean_ms, first)
    writer.add_text(f"{FOLDER}/card", _verbatim(told.card), last)
    writer.add_text(f"{FOLDER}/final_summary", _verbatim(told.json), last)
    folder = Path(writer.log_dir) / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in told.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return True


def _verbatim(text: str) -> str:
    """Keep lines as they are: TensorBoard reads text as Markdown."""
    return "\n".join(f"    {line}" for line in text.splitlines())
