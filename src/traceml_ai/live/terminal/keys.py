"""What a terminal sends for a key: from the view's key events back to bytes for the program."""

from __future__ import annotations

_NAMED = {
    "enter": "\r",
    "tab": "\t",
    "shift+tab": "\x1b[Z",
    "escape": "\x1b",
    "backspace": "\x7f",
    "ctrl+h": "\x08",
    "delete": "\x1b[3~",
    "insert": "\x1b[2~",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "home": "\x1b[H",
    "end": "\x1b[F",
    "pageup": "\x1b[5~",
    "pagedown": "\x1b[6~",
    "ctrl+up": "\x1b[1;5A",
    "ctrl+down": "\x1b[1;5B",
    "ctrl+right": "\x1b[1;5C",
    "ctrl+left": "\x1b[1;5D",
    "ctrl+at": "\0",
    "ctrl+@": "\0",
    "ctrl+space": "\0",
    "ctrl+backslash": "\x1c",
    "ctrl+underscore": "\x1f",
    "ctrl+circumflex_accent": "\x1e",
    "f1": "\x1bOP",
    "f2": "\x1bOQ",
    "f3": "\x1bOR",
    "f4": "\x1bOS",
    "f5": "\x1b[15~",
    "f6": "\x1b[17~",
    "f7": "\x1b[18~",
    "f8": "\x1b[19~",
    "f9": "\x1b[20~",
    "f10": "\x1b[21~",
    "f11": "\x1b[23~",
    "f12": "\x1b[24~",
}


def to_bytes(key: str, character: str | None) -> bytes:
    """Return what an xterm sends for a key; empty for one that it has nothing for.

    Args:
        key: The key's name, as textual calls it.
        character: What it prints, if anything.
    """
    if key in _NAMED:
        return _NAMED[key].encode()
    if key.startswith("ctrl+") and len(key) == len("ctrl+a"):
        return bytes([ord(key[-1].upper()) & 0x1F])
    if key.startswith("alt+"):
        rest = to_bytes(key.removeprefix("alt+"), character)
        return b"\x1b" + rest if rest else b""
    if character:
        return character.encode()
    return key.encode() if len(key) == 1 else b""
