"""What the user wants started: which words are ours, which are the command's, and the command itself.

Splitting is done by hand: ``argparse`` would take options of the script for its own, drop ``--`` and
expand abbreviations.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import PurePath
from typing import Literal, NamedTuple

from traceml_ai.errors import UsageError

USER_ARGS = "--args"
Kind = Literal["script", "module", "command"]


class Target(NamedTuple):
    """The user's program.

    ``words`` are the script and its arguments, the module and its arguments, or a whole command.
    """

    kind: Kind
    words: tuple[str, ...]

    @property
    def stem(self) -> str:
        """What a run of it is called: ``train`` for ``train.py`` and for ``package.train``."""
        if self.kind == "module":
            return self.words[0].removesuffix(".__main__").rpartition(".")[2]
        return PurePath(_named_in(self.words) if self.kind == "command" else self.words[0]).stem or "run"


class Split(NamedTuple):
    """The words of ``traceml run``, told apart."""

    ours: list[str]  # each with its value attached: --option=value
    target: Target | None  # None: no program was named


class Torchrun(NamedTuple):
    """What is handed to ``torch.distributed.run``; ``None``: its own default."""

    nproc_per_node: str | None = None
    nnodes: str | None = None
    node_rank: str | None = None
    master_addr: str | None = None
    master_port: str | None = None
    rdzv_backend: str | None = None
    rdzv_endpoint: str | None = None
    rdzv_id: str | None = None
    rdzv_conf: str | None = None

    @property
    def wanted(self) -> bool:
        """Whether torchrun was asked for; also for one process, which then finds a rank to be."""
        return any(value is not None for value in self)


def split(words: Sequence[str], flags: Collection[str], valued: Collection[str]) -> Split:
    """Tell our words from the command's.

    Ours stand before the program or right behind it, up to ``--args`` or the first word that is not
    ours; everything from there on is the program's, whatever it looks like.

    Args:
        words: What follows ``traceml run``.
        flags: Our options without a value; behind the program ``-h`` and ``--help`` are not ours.
        valued: Our options with one value.

    Raises:
        UsageError: An option of ours lacks its value, or a word before the program is no option of ours.
    """
    ours, at = _take(words, 0, flags, valued)
    if at == len(words):
        return Split(ours, None)
    if words[at] == "--":
        return Split(ours, _program("command", words[at + 1 :], "--"))
    if words[at] == USER_ARGS:
        raise UsageError(f"{USER_ARGS} stands behind the script: traceml run train.py {USER_ARGS} ...")
    kind: Kind = "module" if words[at] == "-m" else "script"
    at += kind == "module"
    program = _program(kind, words[at : at + 1], "-m")
    if kind == "script" and words[at].startswith("-") and words[at] != "-":
        raise UsageError(f"unknown option {words[at]} (traceml run --help lists them)")
    behind, at = _take(words, at + 1, [flag for flag in flags if flag not in {"-h", "--help"}], valued)
    at += words[at : at + 1] == [USER_ARGS]
    return Split(ours + behind, program._replace(words=(*program.words, *words[at:])))


def _program(kind: Kind, words: Sequence[str], after: str) -> Target:
    if not words:
        raise UsageError(f"nothing to run follows {after}")
    return Target(kind, tuple(words))


def _take(
    words: Sequence[str], at: int, flags: Collection[str], valued: Collection[str]
) -> tuple[list[str], int]:
    """Collect our options from ``at`` on; return them and where the first other word is."""
    taken: list[str] = []
    while at < len(words):
        name, has_value, _ = words[at].partition("=")
        if words[at] in flags or (name in valued and has_value):
            taken.append(words[at])
        elif name in valued:
            at += 1
            if at == len(words):
                raise UsageError(f"{name} needs a value (options of the script's own go behind {USER_ARGS})")
            taken.append(f"{name}={words[at]}")
        else:
            break
        at += 1
    return taken, at


def build(target: Target, torchrun: Torchrun, *, python: str | None = None) -> list[str]:
    """Return the command to start.

    Args:
        target: The user's program.
        torchrun: Several processes, started by ``torch.distributed.run``, when it asks for them.
        python: The interpreter; this one when not given.

    Raises:
        UsageError: Several processes were asked for with a whole command line, which has its own launcher.
    """
    interpreter = python or sys.executable
    if target.kind == "command":
        if torchrun.wanted:
            raise UsageError("torchrun's options need a script or -m module, not a whole command")
        return list(target.words)
    module = ["-m"] if target.kind == "module" else []
    if not torchrun.wanted:
        return [interpreter, *module, *target.words]
    # "--" keeps torchrun from taking abbreviations of its own options out of the script's arguments.
    return [interpreter, "-m", "torch.distributed.run", *_options(torchrun), *module, "--", *target.words]


def _options(torchrun: Torchrun) -> list[str]:
    given = torchrun._asdict().items()
    return [f"--{name.replace('_', '-')}={value}" for name, value in given if value is not None]


def hookless(words: Sequence[str]) -> str | None:
    """Return the option that keeps Python from running a start-up hook: ``-I``, ``-E`` or ``-S``.

    Args:
        words: The command that is started.
    """
    if not PurePath(words[0]).name.startswith(("python", "pypy")):
        return None
    for word in words[1:]:
        if len(word) < 2 or word[0] != "-" or word[1] == "-":  # noqa: PLR2004 - a dash and a letter
            return None
        for letter in word[1:]:
            if letter in "IES":
                return f"-{letter}"
            if letter in "cmWX":  # the rest of the word, or the next one, is its value
                break
        if word[1] in "cm":
            return None
    return None


def _named_in(words: Sequence[str]) -> str:
    """Return the word that tells most: the Python script of a command line, else its program."""
    return next((word for word in words if word.endswith(".py")), words[0])
