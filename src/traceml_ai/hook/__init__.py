"""The start-up hook: how the probe gets into a training process that does not know of it.

Importing this package costs nothing and does nothing; the launcher only wants the folder.
"""

from __future__ import annotations

import os


def folder() -> str:
    """The folder to put in front of ``PYTHONPATH``; it holds a ``sitecustomize`` and nothing else."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "path")


def root() -> str:
    """The folder that holds the ``traceml_ai`` package."""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
