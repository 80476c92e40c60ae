"""TraceML: where does a training step spend its time, and what to change first."""

from traceml_ai.api import (
    final_summary,
    init,
    phase,
    summary,
    trace_step,
    wrap_dataloader_fetch,
)
from traceml_ai.errors import TraceMLError, UsageError

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
