"""`import traceml`: the same module under its short name."""
