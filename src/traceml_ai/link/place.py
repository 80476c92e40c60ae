"""Which node this is, as options and environment tell; read before the start, so nothing heavy here."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import NamedTuple

from traceml_ai.errors import UsageError
from traceml_ai.link.keys import VARIABLE, find_secret

_UNKNOWN_RANKS = 64
"""On a node, where only torchrun knows how many (``--nproc-per-node=gpu``): no peer can claim more."""


class Where(NamedTuple):
    """A node's place among the others."""

    nodes: int
    node: int
    ranks_per_node: int
    address: str
    secret: str

    def __repr__(self) -> str:
        return f"Where(nodes={self.nodes}, node={self.node}, address={self.address!r})"


def find_place(
    address: str,
    key_file: Path | None,
    given: tuple[str | None, str | None, str | None],
    environ: MutableMapping[str, str],
) -> Where:
    """Return a node's place, and take the secret out of the environment that programs inherit.

    Args:
        address: ``--link``: ``[host:]port`` of the owner, node 0; without a host it is the loopback address.
        key_file: ``--link-key``.
        given: ``--nnodes``, ``--node-rank`` and ``--nproc-per-node``; a batch system's variables stand in.
        environ: The environment.

    Raises:
        UsageError: Something is missing, or the secret is weak or can be read by others.
    """
    if importlib.util.find_spec("zmq") is None:
        raise UsageError("--link needs pyzmq: pip install 'traceml-ai[nodes]'")
    secret = find_secret(key_file, environ)
    environ.pop(VARIABLE, None)
    nodes = _number("--nnodes", given[0], environ, "SLURM_NNODES", 2)
    node = _number("--node-rank", given[1], environ, "SLURM_NODEID", 0)
    if node >= nodes:
        raise UsageError(f"--node-rank {node} of --nnodes {nodes}: nodes are counted from 0")
    ranks = given[2] or environ.get("SLURM_NTASKS_PER_NODE", "")
    most = int(ranks) if ranks.isascii() and ranks.isdigit() and int(ranks) else _UNKNOWN_RANKS
    return Where(nodes, node, most, _address(address), secret)


def _number(option: str, given: str | None, environ: Mapping[str, str], variable: str, least: int) -> int:
    text = given if given is not None else environ.get(variable)
    if text is None:
        raise UsageError(f"--link needs {option} (or {variable})")
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        raise UsageError(f"--link needs a number of at least {least} for {option}, not {text!r}")
    return int(text)


def _address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise UsageError(f"--link {text}: it is [ADDRESS:]PORT, the address of node 0")
    return f"{host or '127.0.0.1'}:{port}"
