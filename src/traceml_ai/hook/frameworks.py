"""Tell an adapter when its framework was imported, leaving nothing behind in the import system.

A framework imports torch on its way, so at that moment neither has happened: its trainer's module
is yet to come. The one finder that will find that module (of the folder it lies in) hands out a
loader that calls the adapter when the module is complete; after that the finder is as it was.
Nothing is imported here, and a program without the framework gets nothing into its way.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

ADAPTERS: dict[str, str] = {
    "lightning.pytorch.trainer.trainer": "traceml_ai.integrations.lightning",
    "pytorch_lightning.trainer.trainer": "traceml_ai.integrations.lightning",
    "monai.engines.trainer": "traceml_ai.integrations.monai",
    "safetensors.torch": "traceml_ai.integrations.safetensors",
}
"""Module that is imported last of what an adapter needs: the adapter, whose ``adapt`` gets its name."""


def watch() -> None:
    """Call the adapters now where their frameworks are there, else when they are imported."""
    for name, adapter in ADAPTERS.items():
        try:
            if name in sys.modules:
                _call(adapter, name)
            else:
                _wait(name, adapter)
        except Exception:  # noqa: BLE001, S112 - the program comes first; a framework is optional
            continue


def _wait(name: str, adapter: str) -> None:
    top, *inner = name.split(".")
    spec = find_spec(top)
    if spec is None:
        return
    for place in spec.submodule_search_locations or ():
        finder = _finder(os.path.join(place, *inner[:-1]))
        if finder is not None:
            _listen(finder, name, adapter)


def _finder(folder: str) -> Any:
    """The path entry finder of a folder, as the import system keeps it."""
    cache = sys.path_importer_cache
    if folder not in cache and os.path.isdir(folder):
        for hook in sys.path_hooks:
            try:
                cache[folder] = hook(folder)
                break
            except ImportError:
                continue
    return cache.get(folder)


def _listen(finder: Any, name: str, adapter: str) -> None:
    """Have the loader of one module tell us when it has run."""
    find = finder.find_spec

    def find_spec(fullname: str, target: Any = None) -> ModuleSpec | None:
        found: ModuleSpec | None = find(fullname, target)
        if fullname == name and found is not None and found.loader is not None:
            del finder.find_spec
            _after(found.loader, name, adapter)
        return found

    finder.find_spec = find_spec


def _after(loader: Any, name: str, adapter: str) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        del loader.exec_module
        execute(module)
        _call(adapter, name)

    loader.exec_module = exec_module


def _call(adapter: str, name: str) -> None:
    """Let the adapter at its framework; never raises."""
    try:
        import_module(adapter).adapt(name)
    except Exception as error:  # noqa: BLE001 - the program comes first
        try:
            sys.stderr.write(
                f"traceml: {name.partition('.')[0]} is not measured ({type(error).__name__}: {error})\n"
            )
        except Exception:  # noqa: BLE001, S110 - stderr may be closed
            pass
