"""The secret of a link between nodes, and the keys that follow from it.

One secret a run, 32 random bytes. Both ends derive the two CURVE key pairs from it, so that nothing else
has to travel. It is read from a file that only this user can read or from an environment variable, never
from a command line, and is shown nowhere: `Keys` does not print it.
"""

from __future__ import annotations

import binascii
import os
import secrets
import stat
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from traceml_ai.errors import UsageError

VARIABLE = "TRACEML_LINK_SECRET"
SECRET_BYTES = 32
_FEWEST_DIFFERENT = 16
"""Different bytes among 32 random ones: fewer than 16 happen once in 10^12, or when somebody typed them."""
_LONGEST_FILE = 1024


class Pair(NamedTuple):
    """A CURVE key pair in the form that ZeroMQ takes."""

    public: bytes
    secret: bytes

    def __repr__(self) -> str:
        return "Pair(...)"


class Keys(NamedTuple):
    """The keys of one run."""

    owner: Pair
    node: Pair
    run: bytes  # tells this run's frames from another's; no secret

    def __repr__(self) -> str:
        return "Keys(...)"


def new_secret() -> str:
    """Return a fresh secret, 64 hexadecimal digits."""
    return secrets.token_hex(SECRET_BYTES)


def write_secret(path: Path) -> str:
    """Make a secret and write it to a new file that only this user can read.

    Raises:
        UsageError: The file is there already, or can't be written.
    """
    secret = new_secret()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise UsageError(
            f"can't make {path} ({error.strerror}): name a new file for the link's secret"
        ) from None
    with os.fdopen(descriptor, "w") as file:
        file.write(secret + "\n")
    return secret


def find_secret(path: Path | None, environ: Mapping[str, str]) -> str:
    """Return the secret of a file, or else of the environment.

    Raises:
        UsageError: There is none, others can read it, or it is weak.
    """
    if path is not None:
        return _checked(_read_private(path), f"the secret in {path}")
    if VARIABLE in environ:
        return _checked(environ[VARIABLE], f"the secret in {VARIABLE}")
    raise UsageError(f"the link between nodes needs a secret: --link-key FILE (mode 0600), or {VARIABLE}")


def derive(secret: str) -> Keys:
    """Return the keys that follow from a secret.

    Raises:
        UsageError: It is weak.
    """
    raw = bytes.fromhex(_checked(secret, "the link's secret"))
    return Keys(
        _pair(raw, b"owner"), _pair(raw, b"node"), blake2b(raw, digest_size=8, person=b"traceml run").digest()
    )


def _pair(raw: bytes, who: bytes) -> Pair:
    import zmq
    from zmq.utils import z85

    own = z85.encode(blake2b(raw, digest_size=32, person=b"traceml " + who).digest())
    return Pair(zmq.curve_public(own), own)


def _read_private(path: Path) -> str:
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            data = file.read(_LONGEST_FILE)
    except OSError as error:
        raise UsageError(f"can't read the link's secret in {path} ({error.strerror})") from None
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"the link's secret {path} is no plain file")
    if hasattr(os, "getuid") and found.st_uid != os.getuid():
        raise UsageError(f"the link's secret {path} belongs to another user")
    if found.st_mode & 0o077:
        raise UsageError(f"others may read the link's secret {path}: chmod 600 {path}, and make a new one")
    return data.decode("ascii", "replace")


def _checked(text: str, what: str) -> str:
    """Refuse what is no random secret; the message must not hold it."""
    text = text.strip()
    try:
        raw = binascii.unhexlify(text)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != SECRET_BYTES:
        raise UsageError(
            f"{what} is not {SECRET_BYTES} bytes as hexadecimal digits: make one with traceml key"
        )
    if len(set(raw)) < _FEWEST_DIFFERENT:
        raise UsageError(f"{what} is weak, it is not random: make one with traceml key")
    return text
