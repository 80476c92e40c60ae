"""Kept steps as a table for other tools: a row a step, a column a phase."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceml_ai.analyze.columns import USER_COLUMNS, column, observed_mask
from traceml_ai.errors import TraceMLError
from traceml_ai.export.steps import KeptSteps
from traceml_ai.schema.step import Flags

COLUMNS = (
    "step",
    "begin_ns",
    "close_ns",
    "step_ns",
    "input_wait_ns",
    "h2d_ns",
    "forward_ns",
    "backward_ns",
    "optimizer_ns",
    "residual_ns",
    "residual_validation_ns",
    "residual_checkpoint_ns",
    "between_ns",
    "between_validation_ns",
    "between_checkpoint_ns",
    "between_loader_ns",
    "between_gc_ns",
    "between_handlers_ns",
    "own_ns",
    "gc_ns",
    "dev_total_ns",
    "dev_h2d_ns",
    "dev_forward_ns",
    "dev_backward_ns",
    "dev_optimizer_ns",
    "microbatches",
    "updates",
    "samples",
    "tokens",
    "peak_allocated_bytes",
    "peak_reserved_bytes",
)
_FLAGS = {"first_of_epoch": Flags.FIRST_OF_EPOCH, "update_skipped": Flags.UPDATE_SKIPPED}

Masked = tuple[NDArray[Any], NDArray[np.bool_]]


def table_of(steps: KeptSteps) -> dict[str, Masked]:
    """Return column name to values and where they were measured; a phase has the name that the user gave it.

    Times are since the start of the run. Columns that nothing was measured in are there, and empty.
    """
    always = np.ones(len(steps.rows), dtype=np.bool_)
    table: dict[str, Masked] = {"rank": (steps.ranks, always), "pid": (steps.pids, always)}
    for name in COLUMNS:
        table[name] = (column(steps.rows, name), observed_mask(steps.rows, name))
    for name in USER_COLUMNS:
        if name in steps.user_phases:
            label = _label(steps.user_phases[name], table)
            table[label] = (column(steps.rows, name), observed_mask(steps.rows, name))
    flags = column(steps.rows, "flags")
    for name, flag in _FLAGS.items():
        table[name] = ((flags & int(flag)) != 0, always)
    return table


def _label(name: str, taken: dict[str, Masked]) -> str:
    label = f"{name}_ns"
    return label if label not in taken else f"user.{label}"


def write_csv(steps: KeptSteps, path: Path) -> None:
    """Write a CSV file; what was not measured is an empty cell.

    Raises:
        TraceMLError: It can't be written.
    """
    table = table_of(steps)
    cells = [
        [value if seen else "" for value, seen in zip(values.tolist(), mask.tolist(), strict=True)]
        for values, mask in table.values()
    ]
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(table)
            writer.writerows(zip(*cells, strict=True))
    except OSError as error:
        raise TraceMLError(f"can't write {path} ({error.strerror})") from None


def write_parquet(steps: KeptSteps, path: Path) -> None:
    """Write a Parquet file; what was not measured is null.

    Raises:
        TraceMLError: pyarrow is not installed, or the file can't be written.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise TraceMLError('a Parquet file needs pyarrow: pip install "traceml-ai[parquet]"') from None
    columns = {name: pa.array(values, mask=~seen) for name, (values, seen) in table_of(steps).items()}
    try:
        pq.write_table(pa.table(columns), path, compression="zstd")
    except OSError as error:
        raise TraceMLError(f"can't write {path} ({error.strerror or error})") from None
