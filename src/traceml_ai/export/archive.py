"""Reads a numpy archive that anybody may have made: no more memory than the file and its format allow.

``numpy.load`` makes room for whatever shape a member claims to have, whatever is behind it.
"""

from __future__ import annotations

import io
import math
import zipfile
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

_EXTENSION = ".npy"
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def read_archive(file: BinaryIO, kinds: dict[str, str], most_bytes: int) -> dict[str, NDArray[Any]]:
    """Return the arrays of an archive.

    Args:
        file: The archive.
        kinds: The arrays wanted, and the type of their elements; others are left out.
        most_bytes: What all of them may take together.

    Raises:
        ValueError: The archive is damaged, or larger than that.
    """
    if not zipfile.is_zipfile(file):
        raise ValueError("it is no zip file")
    file.seek(0)
    with zipfile.ZipFile(file) as archive:
        wanted = [each for each in archive.infolist() if each.filename.removesuffix(_EXTENSION) in kinds]
        if len(wanted) > len(kinds) or sum(each.file_size for each in wanted) > most_bytes:
            raise ValueError("it holds more than a run keeps")
        read = {each.filename.removesuffix(_EXTENSION): archive.read(each) for each in wanted}
    return {name: _array(name, data, np.dtype(kinds[name])) for name, data in read.items()}


def _array(name: str, data: bytes, kind: np.dtype[Any]) -> NDArray[Any]:
    file = io.BytesIO(data)
    version = npy.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"{name} is written in format {version}")
    shape, _, dtype = _HEADERS[version](file)
    if dtype != kind or len(shape) != 1 or math.prod(shape) * kind.itemsize != len(data) - file.tell():
        raise ValueError(f"{name} is not what it should be")
    return np.frombuffer(data, kind, offset=file.tell())
