"""`import traceml`: the same module under its short name."""

from traceml_ai import *  # noqa: F403
from traceml_ai import __all__, __version__

__all__ = [*__all__]  # noqa: PLE0604 - the names of the long one
