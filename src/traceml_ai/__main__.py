"""``python -m traceml_ai``: the same as ``traceml``."""

from __future__ import annotations

import os
import sys


def _forget_working_directory() -> None:
    """Take the working directory off ``sys.path``: a user's ``random.py`` is not ours to import."""
    if sys.path and sys.path[0] in {"", os.getcwd()}:  # noqa: PTH109 -- before anything else is imported
        del sys.path[0]


if __name__ == "__main__":
    _forget_working_directory()
    from traceml_ai.cli.main import main

    sys.exit(main())
