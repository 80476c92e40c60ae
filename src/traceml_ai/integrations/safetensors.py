"""safetensors: writing a file with it is writing a checkpoint, as ``torch.save`` is."""

from __future__ import annotations

import sys
from _thread import get_ident

from traceml_ai.probe import session as sessions
from traceml_ai.probe.patches import timed_save

__all__ = ["adapt"]


def adapt(module_name: str) -> None:
    """Time ``save_file`` (and so ``save_model``, which ends in it); called when the module was imported.

    Args:
        module_name: ``"safetensors.torch"``.
    """
    session, module = sessions.current, sys.modules[module_name]
    # Not there yet: this very module was the first to import torch, and the program already has it.
    save_file = getattr(module, "save_file", None)
    if session is not None and save_file is not None:
        session.patches.set(module, "save_file", timed_save(session.st, save_file, get_ident))
