"""Names of the environment variables between ``traceml run`` and the training process.

They are the whole contract: a process that finds :data:`SPOOL` records, any other does not.
Standard library only, imported in the training process.
"""

from __future__ import annotations

SPOOL = "TRACEML_SPOOL"
"""Absolute path of the run's private spool folder; the step logs are written there."""

RUN_DIR = "TRACEML_RUN_DIR"
"""Absolute path of the run folder (``logs/<run-name>``); absent when none could be made."""

TRACE_MAX_STEPS = "TRACEML_TRACE_MAX_STEPS"
"""Stop recording after this many steps of a process; absent: record all of them."""

DISABLED = "TRACEML_DISABLED"
"""``1``: no file, no patch, no thread anywhere."""

VIEW_CHANNEL = "TRACEML_VIEW_CHANNEL"
"""Between ``traceml run`` and its own view only: the descriptor they talk over."""

PYTHONPATH = "PYTHONPATH"
"""The start-up hook's folder is put in front of it; the hook takes itself off ``sys.path`` again."""


def is_disabled(value: str | None) -> bool:
    """Whether the value of :data:`DISABLED` switches TraceML off.

    Args:
        value: The variable's value, ``None`` when it is not set.

    Returns:
        True for ``1``, ``true``, ``yes`` and ``on`` in any case.
    """
    return value is not None and value.strip().lower() in {"1", "true", "yes", "on"}
