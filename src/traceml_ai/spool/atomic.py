"""Files that are either the old version or the new one, never half of either. Standard library only."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_atomic(path: Path, data: bytes) -> None:
    """Replace a file by a temporary one in the same folder.

    The file is not synced to the disk: the rename protects readers and a killed writer, which is
    what happens; a power cut would take the training with it.

    Args:
        path: The file to write; its folder exists.
        data: The whole new content.

    Raises:
        OSError: It could not be written; the old version is untouched and nothing is left behind.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
