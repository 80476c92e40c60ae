"""Tell us when ``torch`` has been imported, leaving nothing behind in the import system.

A finder stands first on ``sys.meta_path`` until torch is imported. It lets the ordinary finders
find torch, and the loader's ``exec_module`` (on that one loader object) call us when the module is
complete; then finder and replacement are gone.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class _Finder:
    """Waits for ``import torch``.

    A program may look for torch without importing it (``importlib.util.find_spec``), so the finder
    stays until a loader that it handed out has run.

    Args:
        root: Folder that holds the ``traceml_ai`` package.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._asking = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The ordinary finders' answer, with a loader that tells us when it has run."""
        if name != "torch" or self._asking:
            return None
        self._asking = True
        try:
            spec = find_spec(name)
        finally:
            self._asking = False
        if spec is not None and spec.loader is not None:
            self._after(spec.loader)
        return spec

    def _after(self, loader: Any) -> None:
        """Make ``loader`` attach the probe when it has executed the module, once."""
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            execute(module)
            attach(module, self._root)

        loader.exec_module = exec_module


def attach(torch: ModuleType, root: str) -> None:
    """Attach the probe to this process; never raises."""
    try:
        before = _resident_bytes()
        attached = _import_session(root).attach_from_environment(torch)
        if attached is not None:
            import_module("traceml_ai.hook.frameworks").watch()
            if before:
                attached.facts.values["host_memory_own_bytes"] = max(0, _resident_bytes() - before)
    except Exception as error:  # noqa: BLE001 - the program comes first
        _say(f"can't measure this process ({type(error).__name__}: {error})")


def _resident_bytes() -> int:
    """Resident memory of this process; 0 where the kernel does not tell it in this way."""
    try:
        with open("/proc/self/statm", "rb") as file:  # as text it would take the import of a codec
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _import_session(root: str) -> Any:
    """Import the probe, from ``root`` if the package is not on the program's path."""
    try:
        return import_module("traceml_ai.probe.session")
    except ImportError:
        sys.path.append(root)
        try:
            return import_module("traceml_ai.probe.session")
        finally:
            sys.path.remove(root)


def _say(message: str) -> None:
    try:
        sys.stderr.write(f"traceml: {message}\n")
    except Exception:  # noqa: BLE001, S110 - stderr may be closed
        pass


def watch(root: str) -> None:
    """Attach now if torch is there already, else when it has been imported."""
    torch = sys.modules.get("torch")
    if torch is not None:
        attach(torch, root)
        return
    sys.meta_path.insert(0, _Finder(root))
