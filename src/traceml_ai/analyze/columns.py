"""The step record with the columns that follow from it: step time, time between, residual."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceml_ai.schema.step import (
    BETWEEN_CAUSES,
    COLUMNS,
    COMM_PLACES,
    INDEX,
    N_COLUMNS,
    RESIDUAL_COLUMNS,
    USER_SLOTS,
    WINDOW_PHASES,
    Observed,
    unpack_comm_split,
)

Rows = NDArray[np.int64]

COMM_COLUMNS: tuple[str, ...] = tuple(f"comm_{place}_ns" for place in COMM_PLACES)

DERIVED: tuple[str, ...] = (
    *COMM_COLUMNS,  # the part of comm_ns inside each phase
    "step_ns",  # input wait + traced step, without our own work
    "residual_ns",
    "between_ns",  # every between cause, plus the gap
    "gap_ns",  # since the last kept record ended: aborted, dropped or excluded steps
    "loop_ns",  # step + between + our own work: the wall time of one turn of the loop
    "dev_total_ns",  # input wait + window on the device clock
    "dev_residual_ns",
)
EXT: dict[str, int] = {name: i for i, name in enumerate((*COLUMNS, *DERIVED))}
N_EXT = len(EXT)

USER_COLUMNS: tuple[str, ...] = tuple(f"user_{slot}_ns" for slot in range(USER_SLOTS))
BETWEEN_COLUMNS: tuple[str, ...] = tuple(f"between_{cause}_ns" for cause in BETWEEN_CAUSES)

# Column -> the bit that says it was measured; a column that is not here always was.
OBSERVED_BY: dict[str, Observed] = {
    "input_wait_ns": Observed.INPUT,
    "h2d_ns": Observed.H2D,
    "forward_ns": Observed.FORWARD,
    "backward_ns": Observed.BACKWARD,
    "optimizer_ns": Observed.OPTIMIZER,
    "dev_h2d_ns": Observed.DEVICE | Observed.H2D,
    "dev_forward_ns": Observed.DEVICE | Observed.FORWARD,
    "dev_backward_ns": Observed.DEVICE | Observed.BACKWARD,
    "dev_optimizer_ns": Observed.DEVICE | Observed.OPTIMIZER,
    "dev_total_ns": Observed.DEVICE,
    "dev_residual_ns": Observed.DEVICE,
    "peak_allocated_bytes": Observed.MEMORY,
    "peak_reserved_bytes": Observed.MEMORY,
    "samples": Observed.SAMPLES,
    "tokens": Observed.TOKENS,
    "comm_ns": Observed.COMM,
    "arrival_ns": Observed.COMM,
}

HISTOGRAMMED: tuple[str, ...] = (
    "step_ns",
    "input_wait_ns",
    *(f"{phase}_ns" for phase in WINDOW_PHASES),
    *USER_COLUMNS,
    "residual_ns",
    "between_ns",
    "loop_ns",
    "dev_total_ns",
    *(f"dev_{phase}_ns" for phase in WINDOW_PHASES),
    "dev_residual_ns",
)

_HOST_STEP = [INDEX[f"{name}_ns"] for name in ("input_wait", *WINDOW_PHASES)]
_HOST_STEP += [INDEX[name] for name in (*RESIDUAL_COLUMNS, *USER_COLUMNS)]
_RESIDUAL = [INDEX[name] for name in RESIDUAL_COLUMNS]
_BETWEEN = [INDEX[name] for name in BETWEEN_COLUMNS]
_DEVICE_PHASES = [INDEX[f"dev_{phase}_ns"] for phase in WINDOW_PHASES]


def extend(block: NDArray[Any], previous_close_ns: int | None) -> Rows:
    """Return the records with the derived columns, shape ``(n, N_EXT)``.

    Args:
        block: Records, shape ``(n, N_COLUMNS)``.
        previous_close_ns: When the record before the block's first ended; ``None``: there is none.
    """
    rows = np.empty((len(block), N_EXT), dtype=np.int64)
    rows[:, :N_COLUMNS] = block
    rows[:, EXT["gap_ns"]] = _gaps(rows, previous_close_ns)
    rows[:, EXT["step_ns"]] = rows[:, _HOST_STEP].sum(axis=1)
    rows[:, EXT["residual_ns"]] = rows[:, _RESIDUAL].sum(axis=1)
    rows[:, EXT["between_ns"]] = rows[:, _BETWEEN].sum(axis=1) + rows[:, EXT["gap_ns"]]
    rows[:, EXT["loop_ns"]] = rows[:, EXT["step_ns"]] + rows[:, EXT["between_ns"]] + rows[:, EXT["own_ns"]]
    rows[:, EXT["dev_total_ns"]] = rows[:, EXT["input_wait_ns"]] + rows[:, EXT["dev_step_ns"]]
    if rows[:, EXT["comm_ns"]].any():
        split, total = rows[:, EXT["comm_split"]], rows[:, EXT["comm_ns"]]
        for name, part in zip(COMM_COLUMNS, unpack_comm_split(split, total), strict=True):
            rows[:, EXT[name]] = part
    else:
        rows[:, EXT[COMM_COLUMNS[0]] : EXT[COMM_COLUMNS[-1]] + 1] = 0
    phases = rows[:, _DEVICE_PHASES].sum(axis=1)
    rows[:, EXT["dev_residual_ns"]] = np.maximum(rows[:, EXT["dev_step_ns"]] - phases, 0)
    return rows


def _gaps(rows: Rows, previous_close_ns: int | None) -> Rows:
    gaps = rows[:, EXT["begin_ns"]].copy()
    gaps[1:] -= rows[:-1, EXT["close_ns"]]
    gaps[:1] = 0 if previous_close_ns is None else gaps[:1] - previous_close_ns
    return np.maximum(gaps, 0)


def column(rows: Rows, name: str) -> Rows:
    """Return one column of extended rows."""
    return rows[:, EXT[name]]


def observed_mask(rows: Rows, name: str) -> NDArray[np.bool_]:
    """Return which rows really measured a column; a user's phase was when it took any time."""
    if name in USER_COLUMNS:
        return column(rows, name) > 0
    bits = OBSERVED_BY.get(name)
    if bits is None:
        return np.ones(len(rows), dtype=np.bool_)
    result: NDArray[np.bool_] = (rows[:, EXT["observed"]] & int(bits)) == int(bits)
    return result
