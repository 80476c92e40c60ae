"""A block of step records as bytes: each column as small as its values are.

Columns that are zero throughout are left out; the others are stored less their least value, time stamps as
differences, in the smallest integers that hold them. An ordinary step takes some 60 bytes of its 384.
Whoever decodes believes nothing: every size is checked against what is there before anything is made.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceml_ai.errors import TraceMLError
from traceml_ai.schema.step import COLUMNS, N_COLUMNS

Records = NDArray[np.int64]

MOST_RECORDS = 4096
"""In one block: one and a half megabytes when nothing can be saved."""

_HEAD = struct.Struct("<IB")  # records, columns that follow
_COLUMN = struct.Struct("<BBBqq")  # number, differences?, bytes a value, first value, least value
_WIDTHS: dict[int, np.dtype[Any]] = {
    1: np.dtype("<u1"),
    2: np.dtype("<u2"),
    4: np.dtype("<u4"),
    8: np.dtype("<u8"),
}
_STAMPS = frozenset(map(COLUMNS.index, ("close_ns", "open_ns", "begin_ns", "arrival_ns", "step")))


def encode_block(block: Records) -> bytes:
    """Return records, shape ``(n, 48)``, as bytes.

    Raises:
        ValueError: There are more than `MOST_RECORDS`.
    """
    if len(block) > MOST_RECORDS:
        raise ValueError(f"{len(block)} records in one block, at most {MOST_RECORDS}")
    parts = [
        _encode_column(number, block[:, number]) for number in range(N_COLUMNS) if block[:, number].any()
    ]
    return b"".join([_HEAD.pack(len(block), len(parts)), *parts])


def _encode_column(number: int, values: Records) -> bytes:
    first = 0
    stored = values.view(np.uint64)
    if number in _STAMPS:
        first = int(values[0])
        stored = np.diff(stored)  # wraps, and wraps back
    signed = stored.view(np.int64)
    least = int(signed.min()) if len(signed) else 0
    shifted = stored - np.uint64(least & (1 << 64) - 1)
    largest = int(shifted.max()) if len(shifted) else 0
    width = 0 if largest == 0 else next(width for width in _WIDTHS if largest < 1 << 8 * width)
    data = shifted.astype(_WIDTHS[width]).tobytes() if width else b""
    return _COLUMN.pack(number, number in _STAMPS, width, first, least) + data


def decode_block(data: bytes) -> Records:
    """Return the records of a block, shape ``(n, 48)``.

    Raises:
        TraceMLError: These are no such bytes.
    """
    if len(data) < _HEAD.size:
        raise TraceMLError("a block of records is cut short")
    records, columns = _HEAD.unpack_from(data)
    if not (0 <= records <= MOST_RECORDS and columns <= N_COLUMNS):
        raise TraceMLError(f"a block claims {records} records in {columns} columns")
    block = np.zeros((records, N_COLUMNS), dtype=np.int64)
    at, last = _HEAD.size, -1
    for _ in range(columns):
        at, last = _decode_column(data, at, last, block)
    if at != len(data):
        raise TraceMLError("a block of records goes on behind its end")
    return block


def _decode_column(data: bytes, at: int, last: int, block: Records) -> tuple[int, int]:
    if len(data) - at < _COLUMN.size:
        raise TraceMLError("a block of records is cut short")
    number, stamps, width, first, least = _COLUMN.unpack_from(data, at)
    at += _COLUMN.size
    if not last < number < N_COLUMNS or width not in {0, *_WIDTHS} or stamps != (number in _STAMPS):
        raise TraceMLError("a block of records holds a damaged column")
    count = max(0, len(block) - bool(stamps))
    end = at + count * width
    if end > len(data):
        raise TraceMLError("a block of records is cut short")
    stored = np.full(count, least & (1 << 64) - 1, dtype=np.uint64)
    if width:
        stored += np.frombuffer(data, _WIDTHS[width], count, at)
    if stamps and len(block):
        beginning = np.array([first & (1 << 64) - 1], np.uint64)
        stored = np.cumsum(np.concatenate([beginning, stored]), dtype=np.uint64)
    block[:, number] = stored.view(np.int64)
    return end, number
