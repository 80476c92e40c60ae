"""Positions in a step record, and what else the modules of the step state share by number."""

from __future__ import annotations

from traceml_ai.schema.step import (
    EXCLUSIVE_COLUMNS,
    HOT_COLUMNS,
    INDEX,
    N_COLUMNS,
    USER_SLOTS,
    Flags,
)

OPEN = INDEX["open_ns"]
CLOSE = INDEX["close_ns"]
INPUT = INDEX["input_wait_ns"]
H2D = INDEX["h2d_ns"]
FORWARD = INDEX["forward_ns"]
BACKWARD = INDEX["backward_ns"]
OPTIMIZER = INDEX["optimizer_ns"]
RESIDUAL = INDEX["residual_other_ns"]
RESIDUAL_VALIDATION = INDEX["residual_validation_ns"]
RESIDUAL_CHECKPOINT = INDEX["residual_checkpoint_ns"]
VALIDATION = INDEX["between_validation_ns"]
CHECKPOINT = INDEX["between_checkpoint_ns"]
GC_BETWEEN = INDEX["between_gc_ns"]
LOADER = INDEX["between_loader_ns"]
HANDLERS = INDEX["between_handlers_ns"]
BETWEEN = INDEX["between_other_ns"]
OWN = INDEX["own_ns"]
GC_INSIDE = INDEX["gc_ns"]
GC_COUNT = INDEX["gc_collections"]
MICROBATCHES = INDEX["microbatches"]
UPDATES = INDEX["updates"]
SAMPLES = INDEX["samples"]
FLAGS = INDEX["flags"]
BOUNDARIES = INDEX["boundaries"]
USER_0 = INDEX["user_0_ns"]
FETCHES = INDEX["fetches"]
ALLOCATED = INDEX["peak_allocated_bytes"]
RESERVED = INDEX["peak_reserved_bytes"]
GLOBAL_STEP = INDEX["global_step"]

# Time after an evaluating call that belongs to validation only if another such call follows. It
# lies in a column that is only written once the record is (`probe.comm`), and empty until then.
TAIL = INDEX["comm_split"]
# How far a plain step has come (`StepState.stage`); see `StepState.settle`.
CLOSING = -2  # a record is being written: a collection now is part of our work
GENERAL, IDLE, FETCHED, OPENED, FORWARDED, BACKWARDED, UPDATED = -1, 0, 1, 2, 3, 4, 5
IN_FETCH, IN_FORWARD, IN_BACKWARD, IN_OPTIMIZER = 11, 12, 13, 14
# The same for a plain step that a trainer tells of (`probe.telling`). Its model call goes through
# OPENED, IN_FORWARD and FORWARDED.
T_HANDLERS, T_BETWEEN, T_FETCH, T_FETCHED, T_MOVING, T_READY = 20, 21, 22, 23, 24, 25
T_CALLED, T_BACKWARD, T_BACKWARDED, T_OPTIMIZER, T_UPDATED = 26, 27, 28, 29, 30
# Of a trainer whose handlers and parts of the step are told apart (`integrations._monai_noted`).
T_TRAINING, T_ZEROING, T_INFERRING, T_CLOSING = 31, 32, 33, 34

# Stages in which something is under way that the books have a flag for.
FETCHING = (IN_FETCH, T_FETCH)
DIFFERENTIATING = (IN_BACKWARD, T_BACKWARD)

# `cur` of a process that is not measured (any more): no fast path recognises it.
OFF = -1

EXCLUSIVE = tuple(INDEX[name] for name in EXCLUSIVE_COLUMNS)
CAUSES = (VALIDATION, CHECKPOINT, GC_BETWEEN, LOADER, HANDLERS)
USER = range(USER_0, USER_0 + USER_SLOTS)
WINDOW_COLUMNS = (INPUT, H2D, FORWARD, BACKWARD, OPTIMIZER, RESIDUAL)
ZERO = [0] * N_COLUMNS
ZERO_HOT = [0] * HOT_COLUMNS

UNKNOWN, TRAIN, EVAL = 0, 1, 2

# What `phase` may be called with besides names of the user's own.
STANDARD_PHASES = {"h2d": H2D, "forward": FORWARD, "backward": BACKWARD, "optimizer": OPTIMIZER}

# `StepState.framework`: whose steps these are. NONE: a plain loop. OWNED: a trainer tells where its
# steps begin and end. PASS_CALL: the same, and the next model call is the trainer's own (a wrapped
# model is called so that it calls the training step). ASIDE: the trainer does something else.
NONE, OWNED, PASS_CALL, ASIDE = 0, 1, 2, 3

MARKED_BIT = int(Flags.MARKED)
RAW_BIT = int(Flags.RAW)
RAW_MARKED_BIT = RAW_BIT | MARKED_BIT
TOLD_BIT = int(Flags.TOLD)
SKIPPED_BIT = int(Flags.UPDATE_SKIPPED)
FIRST_BIT = int(Flags.FIRST_OF_EPOCH)
TAIL_BIT = int(Flags.TAIL)
NO_OPTIMIZER_BIT = int(Flags.NO_OPTIMIZER)

# After so many batches with a backward and no update, an existing optimizer is taken to be unused.
HAND_AFTER_BACKWARDS = 512
# Loaders' passes that are remembered; older ones are looked at anew.
MAX_ITERATIONS = 64
# So many steps with one update each must have been seen before a second one is split off.
SPLIT_AFTER_STEPS = 20
