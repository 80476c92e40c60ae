"""The card for a stream: as wide as its terminal, in characters that it can encode."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TextIO

from traceml_ai.report.card import MAX_WIDTH, render_card
from traceml_ai.schema.summary import Summary

__all__ = ["card_for", "stream_can_encode"]

_GLYPHS = "█░·…→µ"


def stream_can_encode(stream: TextIO, text: str = _GLYPHS) -> bool:
    """Say whether ``stream`` can encode ``text``, by default the characters that a card is drawn with."""
    try:
        text.encode(stream.encoding)
    except (AttributeError, LookupError, TypeError, UnicodeEncodeError):
        return False
    return True


def card_for(summary: Summary, stream: TextIO, *, environ: Mapping[str, str] | None = None) -> str:
    """Render the card for a stream; colours on a terminal, unless ``NO_COLOR`` or ``TERM=dumb`` is set."""
    environ = os.environ if environ is None else environ
    plain = bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb"
    ascii_only = not stream_can_encode(stream)
    card = render_card(
        summary, width=_columns(stream), ascii_only=ascii_only, color=not plain and stream.isatty()
    )
    fits = ascii_only or stream_can_encode(stream, card)  # a run name may hold what the glyphs do not
    return card if fits else card.encode(stream.encoding, "replace").decode(stream.encoding)


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or MAX_WIDTH
    except (AttributeError, OSError, ValueError):
        return MAX_WIDTH
