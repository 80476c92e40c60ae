"""The step record: one closed training step as 48 signed 64-bit integers.

Every column has the same width so that the writer is one ``struct`` call and the reader one
``numpy.frombuffer``. Durations are nanoseconds on the host clock (``time.perf_counter_ns``) unless
the name starts with ``dev_``. The exclusive columns of one record partition the interval between
two step ends, so summing them over a run accounts for every nanosecond of it::

    close - previous close = input_wait + h2d + forward + backward + optimizer + named phases
                             + residual_* + between_* + own

The first record is the exception: what came before its own work is start-up, so it begins with
``between_other_ns == 0`` and the sum is its own.

This module is imported in the training process: standard library only.
"""

from __future__ import annotations

from enum import IntFlag
from typing import Any

COLUMNS: tuple[str, ...] = (
    # The first HOT_COLUMNS are all that an ordinary step writes; the rest stays zero on disk.
    "close_ns",  # the traced window closed
    "open_ns",  # the traced window opened (after the first fetch of the step)
    "input_wait_ns",  # the training thread waited for the batches of this step
    "forward_ns",
    "backward_ns",
    "optimizer_ns",
    "residual_other_ns",  # inside the window, in no phase and of no known cause
    "between_other_ns",
    "own_ns",  # TraceML's own work, taken out of the other columns
    "microbatches",  # batches that went through a backward
    "updates",  # optimizer steps that took effect, all optimizers
    "samples",
    "fetches",  # batches fetched from training loaders
    "boundaries",  # timed calls in this record (what the own cost was computed from)
    "flags",
    # The next three are written by a framework's ordinary steps.
    "h2d_ns",
    "between_handlers_ns",  # framework callbacks after the step
    "global_step",  # the framework's own step number, -1 when there is none (stored plus one)
    # Written by steps in which something less ordinary happened.
    "residual_validation_ns",  # an evaluation pass inside the window
    "residual_checkpoint_ns",  # torch.save inside the window
    "between_validation_ns",
    "between_checkpoint_ns",
    "between_gc_ns",
    "between_loader_ns",  # creating and ending the loader's iterator
    "user_0_ns",
    "user_1_ns",
    "user_2_ns",
    "user_3_ns",
    "user_4_ns",
    "user_5_ns",
    "user_6_ns",
    "user_7_ns",
    "gc_ns",  # collections inside the window; overlaps the phase they interrupted
    "gc_collections",
    "dev_h2d_ns",
    "dev_forward_ns",
    "dev_backward_ns",
    "dev_optimizer_ns",
    "dev_step_ns",  # the window on the device clock
    "peak_allocated_bytes",
    "peak_reserved_bytes",
    "tokens",
    "comm_ns",  # collectives on the training thread, overlaps the phase they are in
    "arrival_ns",  # when this rank arrived at the first collective of the step
    "comm_split",  # where `comm_ns` lies, see `pack_comm_split`
    # Completed by the reader from the columns above.
    "step",  # process-local index, from 0
    "begin_ns",  # close_ns minus every exclusive column of this record
    "observed",
)
HOT_COLUMNS = 18
FLAGS_COLUMN = 14
INDEX: dict[str, int] = {name: i for i, name in enumerate(COLUMNS)}
N_COLUMNS = len(COLUMNS)
RECORD_BYTES = 8 * N_COLUMNS
USER_SLOTS = 8

EXCLUSIVE_COLUMNS: tuple[str, ...] = tuple(
    name
    for name in COLUMNS
    if name.endswith("_ns")
    and not name.startswith("dev_")
    and name not in {"begin_ns", "open_ns", "close_ns", "gc_ns", "comm_ns", "arrival_ns"}
)
"""The columns that partition a record's time."""

WINDOW_PHASES: tuple[str, ...] = ("h2d", "forward", "backward", "optimizer")
"""Phases inside the traced step; each has the column ``<name>_ns``."""

RESIDUAL_COLUMNS = ("residual_other_ns", "residual_validation_ns", "residual_checkpoint_ns")
BETWEEN_CAUSES: tuple[str, ...] = ("validation", "checkpoint", "gc", "loader", "handlers", "other")
"""Causes of time between steps; each has the column ``between_<cause>_ns``."""


COMM_PLACES: tuple[str, ...] = (
    "input_wait",
    "forward",
    "backward",
    "optimizer",
    "residual",
    "between_steps",
)
"""Where a rank may wait for collectives."""
_SPLIT_BITS = 10
_SPLIT_WHOLE = (1 << _SPLIT_BITS) - 1


def pack_comm_split(by_place: list[int], total: int) -> int:
    """Pack shares of a whole, one per place of `COMM_PLACES`, into one integer, to a thousandth.

    Args:
        by_place: The parts, in the order of `COMM_PLACES`.
        total: Their sum, above zero.
    """
    packed = 0
    for part in reversed(by_place):
        packed = packed << _SPLIT_BITS | min(_SPLIT_WHOLE, _SPLIT_WHOLE * part // total)
    return packed


def unpack_comm_split(packed: Any, total: Any) -> list[Any]:
    """Return the parts that `pack_comm_split` packed, in the unit of ``total``; takes arrays too."""
    return [
        ((packed >> (_SPLIT_BITS * place)) & _SPLIT_WHOLE) * total // _SPLIT_WHOLE
        for place in range(len(COMM_PLACES))
    ]


class Observed(IntFlag):
    """Which measurements of a record were really made; an unset bit means unavailable, not zero."""

    INPUT = 1
    H2D = 2
    FORWARD = 4
    BACKWARD = 8
    OPTIMIZER = 16
    DEVICE = 32
    MEMORY = 64
    SAMPLES = 128
    TOKENS = 256
    COMM = 512


class Flags(IntFlag):
    """What kind of step a record is."""

    MARKED = 1  # the user's trace_step or a framework's window; else inferred
    UPDATE_SKIPPED = 2  # an update was attempted and did not take effect (AMP)
    FIRST_OF_EPOCH = 4  # holds the first batch of a loader's iteration
    TAIL = 8  # not a step: what followed the last step, at exit
    NO_OPTIMIZER = 16  # inferred without any optimizer object (hand-written update)
    COMPILED = 32  # a compiler ran inside this step
    RAW = 64  # on disk only: the record holds time stamps, see RAW_COLUMNS
    TOLD = 128  # on disk only, with RAW: a trainer told them, see TOLD_COLUMNS


RAW_COLUMNS: tuple[str, ...] = (
    "close",
    "open",
    "fetch_begin",
    "forward_begin",
    "backward_begin",
    "optimizer_begin",
    "forward_end",
    "backward_end",
    "own",  # a duration: our own work after the previous step
    "begin",  # when that work was over
    "optimizer_end",
    "samples",  # a count
    "fetch_end",
    "boundaries",  # a count
    "flags",
)
"""What the first columns of a ``Flags.RAW`` record mean.

A plain step (one fetch, forward, backward and update, in that order, and nothing else) is written
as the time stamps of its calls; the subtractions are left to whoever reads it (`decode_raw`).
"""
RAW: dict[str, int] = {name: i for i, name in enumerate(RAW_COLUMNS)}


TOLD_COLUMNS: tuple[str, ...] = (
    "close",
    "open",
    "fetch_begin",
    "forward_begin",
    "backward_begin",
    "optimizer_begin",
    "forward_end",
    "backward_end",
    "own",
    "begin",
    "handlers_end",  # the callbacks after the previous step had returned
    "samples",
    "fetch_end",
    "boundaries",
    "flags",
    "h2d_end",  # 0: nothing was transferred
    "optimizer_end",  # 0: with the window
    "global_step",  # plus one
)
"""What the first columns of a ``Flags.TOLD`` record mean: a plain step of a framework's trainer.

A transfer begins with the window. Where callbacks are not all there is between ``begin`` and the end of
the last of them, ``handlers_end`` is ``begin`` plus what they took.
"""
TOLD: dict[str, int] = {name: i for i, name in enumerate(TOLD_COLUMNS)}


def decode_raw(stamps: Any, *, told: bool = False) -> dict[str, Any]:
    """The columns of a plain step from its time stamps.

    Args:
        stamps: Indexable by the positions of `RAW_COLUMNS`: a list for one record, or an array of
            shape ``(48, n)`` for many.
        told: Whether the positions are those of `TOLD_COLUMNS`.

    Returns:
        Column name to value (or array): every column that is not zero.
    """
    at = TOLD if told else RAW

    def between(end: str, begin: str) -> Any:
        return stamps[at[end]] - stamps[at[begin]]

    one = stamps[at["fetch_end"]] * 0 + 1
    values = {
        "close_ns": stamps[at["close"]],
        "open_ns": stamps[at["open"]],
        "input_wait_ns": between("fetch_end", "fetch_begin"),
        "forward_ns": between("forward_end", "forward_begin"),
        "backward_ns": between("backward_end", "backward_begin"),
        "own_ns": stamps[at["own"]],
        "microbatches": one,
        "updates": one,
        "samples": stamps[at["samples"]],
        "fetches": one,
        "boundaries": stamps[at["boundaries"]],
        "flags": stamps[at["flags"]] & ~int(Flags.RAW | Flags.TOLD),
    }
    computing = between("backward_begin", "forward_end") + between("optimizer_begin", "backward_end")
    if told:
        ready, updated = (
            stamps[at[end]] + (stamps[at[end]] == 0) * stamps[at[instead]]
            for end, instead in (("h2d_end", "open"), ("optimizer_end", "close"))
        )
        return values | {
            "between_handlers_ns": between("handlers_end", "begin"),
            "between_other_ns": between("fetch_begin", "handlers_end") + between("open", "fetch_end"),
            "h2d_ns": ready - stamps[at["open"]],
            "optimizer_ns": updated - stamps[at["optimizer_begin"]],
            "residual_other_ns": stamps[at["forward_begin"]]
            - ready
            + computing
            + stamps[at["close"]]
            - updated,
            "global_step": stamps[at["global_step"]],
        }
    return values | {
        "between_other_ns": between("fetch_begin", "begin") + between("open", "fetch_end"),
        "optimizer_ns": between("optimizer_end", "optimizer_begin"),
        "residual_other_ns": between("forward_begin", "open") + computing + between("close", "optimizer_end"),
    }
