"""TraceML: where does a training step spend its time, and what to change first."""

import typing as _typing

from traceml_ai.errors import TraceMLError, UsageError

if _typing.TYPE_CHECKING:
    from traceml_ai.api import (
        final_summary,
        init,
        phase,
        summary,
        trace_step,
        wrap_dataloader_fetch,
    )

__version__ = "0.1.0"

__all__ = [
    "TraceMLError",
    "UsageError",
    "final_summary",
    "init",
    "phase",
    "summary",
    "trace_step",
    "wrap_dataloader_fetch",
]


def __getattr__(name: str) -> _typing.Any:
    # The launcher imports this package too, and should not wait for what only a script calls.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from traceml_ai import api

    value = globals()[name] = getattr(api, name)
    return value
