"""Colours. Those of phases can be told apart with any kind of colour vision (after Okabe and Ito, 2008)."""

from __future__ import annotations

from zlib import crc32

from traceml_ai.schema.summary import Severity

PHASE_COLOURS: dict[str, str] = {
    "input_wait": "#e69f00",
    "h2d": "#56b4e9",
    "forward": "#0072b2",
    "backward": "#009e73",
    "optimizer": "#cc79a7",
    "residual": "#5f6872",
    "between_steps": "#8d97a3",
}
SEVERITY_COLOURS: dict[Severity, str] = {"critical": "#c62828", "warning": "#d06a00", "info": "#5b6bbf"}
_OTHERS = ("#d55e00", "#7b61a8", "#4e9a9a", "#b8860b", "#a0522d", "#6b8e23", "#b05070", "#5f7fbf")

INK = "#24292f"
GRID = "#d8dde3"
ACCENT = "#0072b2"
LIMIT = "#c62828"

DARK_FILTER = "invert(0.93) hue-rotate(180deg)"
"""Turns a drawing for a white page into one for a dark page: light and dark swap, hues stay."""


def colour_of(phase: str) -> str:
    """Return a phase's colour; one that the user named always gets the same one."""
    return PHASE_COLOURS.get(phase) or _OTHERS[crc32(phase.encode("utf-8", "replace")) % len(_OTHERS)]
