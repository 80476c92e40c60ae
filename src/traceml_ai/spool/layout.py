"""Where things lie in a spool folder and in a step log's header.

A spool folder is private to one run (mode 0700, files 0600, local disk or memory). Each training
process writes ``steps-<pid>-<segment>.tlog`` segments and one ``facts-<pid>.json``.

A segment is a 4096-byte header and ``capacity`` fixed-width records. The header's integers are
signed, 64-bit, in the host's byte order (a log is read where it was written), at the offsets below;
a JSON description of the record starts at ``LAYOUT_OFFSET`` and is padded with zero bytes. A record
is written first and ``COUNT`` last, so a reader never sees half a record: one writer, one reader, no
lock. The newest record may still be amended (a second optimizer of the same step) until the next one
is written or the file is closed.
"""

from __future__ import annotations

import contextlib
import os

MAGIC = b"TRACEML1"
HEADER_BYTES = 4096
LAYOUT_OFFSET = 1024
RECORDS_PER_SEGMENT = 4096
MAX_SEGMENTS = 160  # of one process; a collector that lives has deleted read ones long before

# offset -> int64
HEADER_SIZE = 8
RECORD_SIZE = 16
CAPACITY = 24
SEGMENT = 32
FIRST_STEP = 40  # records written in all earlier segments
PID = 48
RANK = 56  # -1: not known
LOCAL_RANK = 64
WORLD_SIZE = 72
ORIGIN_PERF_NS = 80  # when the probe attached to this process
ORIGIN_UNIX_NS = 88
COUNT = 96  # complete records in this segment
SETTLED = 104  # records whose device columns are final; -1: no device clock, all are
ABORTED = 112  # aborted steps so far
DROPPED = 120  # closed steps that could not be kept
OPEN_NS = 128  # a step has been open since; 0: none
CLOSED = 136  # 1: no more records will come in this segment
NEXT_SEGMENT = 144  # 1: the writer went on in the next segment
OWN_PAIR_NS = 152  # calibrated cost of one timed call; the reader takes it out of the residual

# The same in integers, for whoever writes through a map of them.
INT_BYTES = 8
COUNT_AT = COUNT // INT_BYTES
FIRST_AT = HEADER_BYTES // INT_BYTES  # the first record


def segment_name(pid: int, segment: int) -> str:
    """File name of one step-log segment."""
    return f"steps-{pid}-{segment:05d}.tlog"


def discard(path: str) -> None:
    """Delete a segment: also where its file had to go elsewhere, for want of room.

    Raises:
        OSError: There is none.
    """
    if os.path.islink(path):
        target = os.readlink(path)
        # A link in a folder of ours; its name is looked at all the same before anything is deleted.
        if os.path.basename(target) == f"{os.path.basename(os.path.dirname(path))}-{os.path.basename(path)}":
            with contextlib.suppress(OSError):
                os.unlink(target)
    os.unlink(path)


def facts_name(pid: int) -> str:
    """File name of a process's facts."""
    return f"facts-{pid}.json"
