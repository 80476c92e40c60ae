"""The end of a run as the user sees it: the card on standard error, and the text beside the JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping

import msgspec

from traceml_ai.collect.publish import Publisher
from traceml_ai.launch.say import STDERR, can_show, stderr_width, write_stderr
from traceml_ai.report.card import MIN_WIDTH, render_card
from traceml_ai.schema.summary import Summary
from traceml_ai.spool.runfolder import TEXT_FILE


def tell(
    summary: Summary,
    publisher: Publisher,
    *,
    as_json: bool,
    environ: Mapping[str, str],
    rest: Callable[[], None] = lambda: None,
    shown: bool = True,
) -> None:
    """Write ``final_summary.txt`` and show the card.

    Standard output stays the program's own, so the card goes to standard error.

    Args:
        summary: The run.
        publisher: Where its files go.
        as_json: Show the summary as one line of JSON instead, the last line of standard error.
        environ: ``NO_COLOR`` and ``TERM`` decide about colour on a terminal.
        rest: Says what else there is to say: below the card, above the JSON.
        shown: Show it at all; another node does otherwise.
    """
    publisher.write(TEXT_FILE, render_card(summary).encode())
    if as_json:
        rest()
        if shown:
            write_stderr(msgspec.json.encode(summary).decode() + "\n")
        return
    if shown:
        _show(summary, environ)
    rest()


def _show(summary: Summary, environ: Mapping[str, str]) -> None:
    """Show the card as the stream can."""
    width, color = stderr_width(MIN_WIDTH), wants_color(environ)
    card = render_card(summary, width=width, color=color)
    if not can_show(card):
        card = render_card(summary, width=width, color=color, ascii_only=True)
    write_stderr(card)


def wants_color(environ: Mapping[str, str], descriptor: int = STDERR) -> bool:
    """Whether a stream is a terminal that shows colour."""
    if environ.get("NO_COLOR") or environ.get("TERM") == "dumb" or sys.platform == "win32":
        return False
    try:
        return os.isatty(descriptor)
    except OSError:
        return False
