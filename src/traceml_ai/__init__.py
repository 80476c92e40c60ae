"""TraceML: where does a training step spend its time, and what to change first."""

__version__ = "0.1.0"
