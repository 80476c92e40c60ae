"""The environment the training process gets: the user's own, and how to find the spool."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from traceml_ai.schema import env


def child_environment(
    environ: Mapping[str, str],
    *,
    hook_folder: Path,
    spool: Path,
    run_folder: Path | None,
    trace_max_steps: int | None = None,
) -> dict[str, str]:
    """Return the environment of a recorded run.

    Args:
        environ: The launcher's own.
        hook_folder: Folder with the start-up hook, put in front of ``PYTHONPATH``.
        spool: The run's spool folder.
        run_folder: The run folder, if there is one.
        trace_max_steps: Record at most so many steps of a process.
    """
    contract = {
        env.SPOOL: str(spool.absolute()),
        env.RUN_DIR: None if run_folder is None else str(run_folder.absolute()),
        env.TRACE_MAX_STEPS: None if trace_max_steps is None else str(trace_max_steps),
        env.PYTHONPATH: with_folder_in_front(environ.get(env.PYTHONPATH), str(hook_folder)),
    }
    child = {name: value for name, value in environ.items() if name not in contract}
    child.update({name: value for name, value in contract.items() if value is not None})
    return child


def with_folder_in_front(python_path: str | None, folder: str) -> str:
    """Return ``PYTHONPATH`` with a folder in front, once, and the rest as it was.

    An empty value must not become an empty entry: Python would take that for the working directory.
    """
    if not python_path or python_path == folder:
        return folder
    if python_path.startswith(folder + os.pathsep):
        return python_path
    return folder + os.pathsep + python_path
