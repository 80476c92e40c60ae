"""The summary on disk: ``final_summary.json`` and ``final_summary.txt``."""

from __future__ import annotations

from pathlib import Path

from traceml_ai.report.card import render_card
from traceml_ai.schema.summary import Summary, encode
from traceml_ai.spool.atomic import write_atomic
from traceml_ai.spool.runfolder import SUMMARY_FILE, TEXT_FILE

__all__ = ["write_summary"]


def write_summary(folder: Path, summary: Summary) -> None:
    """Write both files; a reader sees the old ones or the new ones, never half of one.

    Args:
        folder: The run folder; it exists.
        summary: What to write.

    Raises:
        OSError: A file could not be written. The text is only written after the JSON was.
    """
    write_atomic(folder / SUMMARY_FILE, encode(summary))
    write_atomic(folder / TEXT_FILE, render_card(summary).encode("utf-8", "replace"))
