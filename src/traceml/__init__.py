"""`import traceml`: the same module under its short name."""

from traceml_ai import *  # noqa: F403
from traceml_ai import __all__ as __all__
from traceml_ai import __version__ as __version__
