"""A command line taken apart: which script it runs, and with what arguments."""

from __future__ import annotations

from collections.abc import Sequence

_LAUNCHERS = frozenset({"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"})
SET = "given"  # the value of an option that has none


def program(command: Sequence[str]) -> str | None:
    """Return the script's file name or the module's name; ``None`` of no command."""
    return _split(command)[0]


def arguments(command: Sequence[str]) -> dict[str, str]:
    """Return the arguments by name.

    ``--lr 0.1`` and ``--lr=0.1`` are the same, an option without a value is ``given``, words that belong to
    no option are ``argument 1``, ``argument 2``, and so on. Which options take a value is the script's
    secret: a word behind an option that does not look like an option is taken for its value.
    """
    words = _split(command)[1]
    found: dict[str, str] = {}
    at = places = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not _is_option(word):
            places += 1
            found[f"argument {places}"] = word
            continue
        name, equals, value = word.partition("=")
        if not equals and at < len(words) and not _is_option(words[at]):
            value = words[at]
            at += 1
        value = value if equals or value else SET
        found[name] = f"{found[name]} {value}" if name in found else value
    return found


def _split(command: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the program and the words that are not it: those of a launcher, and the program's own."""
    if not command:
        return None, []
    words = list(command)
    before: list[str] = []
    if _is_python(words[0]):
        words = words[1:]
    at = 0
    while at < len(words):
        word = words[at]
        following = words[at + 1] if at + 1 < len(words) else ""
        if word.endswith(".py"):
            return _file_name(word), before + words[at + 1 :]
        if word == "-m" and following not in _LAUNCHERS:
            return following, before + words[at + 2 :]
        if word == "-m":
            at += 2
            continue
        if word != "--":
            before.append(word)
        at += 1
    return _file_name(command[0]), list(command[1:])


def _is_python(word: str) -> bool:
    return _file_name(word).startswith("python")


def _file_name(word: str) -> str:
    return word.replace("\\", "/").rpartition("/")[2]


def _is_option(word: str) -> bool:
    return word.startswith("-") and not word[1:2].isdigit() and len(word) > 1
