"""Runs at the start of every Python process below ``traceml run``, before the program.

It takes its own folder off ``sys.path`` again, runs the user's ``sitecustomize`` if there is one,
and arranges to be told when ``torch`` has been imported. A process that never imports torch is not
touched any further. Whatever goes wrong here goes wrong silently: the program comes first.
"""

import sys


def _leave_path() -> None:
    """Undo what ``PYTHONPATH`` did to ``sys.path``; the variable itself stays, for child processes."""
    import os

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or os.curdir) != here]


def _run_users() -> None:
    """Import the ``sitecustomize`` that would have been found without ours."""
    from importlib import util

    ours = sys.modules.pop("sitecustomize")
    try:
        spec = util.find_spec("sitecustomize")
    finally:
        sys.modules["sitecustomize"] = ours  # a failing import takes itself out, and must be there
    if spec is None or spec.loader is None:
        # What `site` would have got without us; it says nothing, and no module of ours stays behind.
        raise ImportError("No module named 'sitecustomize'", name="sitecustomize")
    module = util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _watch_torch() -> None:
    """Be told when torch was imported."""
    import os

    if not os.environ.get("TRACEML_SPOOL"):
        return
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from importlib.util import module_from_spec, spec_from_file_location

    # By path and under a private name: the package may be installed elsewhere, or not importable.
    spec = spec_from_file_location("_traceml_torch_import", os.path.join(package, "hook", "torch_import.py"))
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.watch(os.path.dirname(package))


try:
    _leave_path()
    _watch_torch()
except Exception:  # noqa: BLE001, S110
    pass
_run_users()
