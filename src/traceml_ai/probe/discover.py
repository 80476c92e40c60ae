"""Find the model that is trained, when nobody named it.

After a backward the parameters that have gradients are known; the modules that own them are found
among the interpreter's tracked objects, once. That is the only way that puts nothing of ours into
the calls of modules that are not measured: hooks or a patched ``torch.nn.Module`` would cost every
nested call and make compilers trace them again.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any

__all__ = ["children_of", "holds_trained_parameter", "live_instances", "trained_roots"]


def _kinds(base: type) -> set[type]:
    """``base`` and every class derived from it so far."""
    found = {base}
    open_ = [base]
    kind: type
    while open_:
        for kind in type.__subclasses__(open_.pop()):
            if kind not in found:
                found.add(kind)
                open_.append(kind)
    return found


def live_instances(base: type) -> list[Any]:
    """Every live object of ``base``, by its real type (no ``isinstance``: proxies would run)."""
    kinds = _kinds(base)
    return [thing for thing in gc.get_objects() if type(thing) in kinds]


def _held(thing: Any, name: str) -> dict[str, Any]:
    """A module's own dictionary of that name; empty where a half-built or scripted one has none.

    Not by ``vars(thing)``: CPython makes an object's ``__dict__`` when it is first asked for, and from
    then on finds each attribute more slowly: 50 ns more for every call of every module that was looked at.
    """
    try:
        return object.__getattribute__(thing, name) or {}
    except AttributeError:
        return {}


def _submodules(thing: Any) -> list[Any]:
    return [m for m in _held(thing, "_modules").values() if m is not None]


def _is_trained(thing: Any, trained: frozenset[int]) -> bool:
    return any(
        p is not None and (id(p) in trained or (p.requires_grad and p.grad is not None))
        for p in _held(thing, "_parameters").values()
    )


def holds_trained_parameter(thing: Any, trained: Iterable[int]) -> bool:
    """Whether a module, or one inside it, holds a trained parameter; see `trained_roots`."""
    ids = frozenset(trained)
    open_, known = [thing], {id(thing)}
    while open_:
        one = open_.pop()
        if _is_trained(one, ids):
            return True
        for child in _submodules(one):
            if id(child) not in known:
                known.add(id(child))
                open_.append(child)
    return False


def trained_roots(module: type, trained: Iterable[int] = ()) -> list[Any]:
    """The outermost live modules that hold a trained parameter.

    Args:
        module: ``torch.nn.Module``.
        trained: Ids of parameters that optimizers hold, beside those that have a gradient.

    Returns:
        Modules none of which is inside another one of them.
    """
    ids = frozenset(trained)
    holds: dict[int, bool] = {}

    def holds_trained(thing: Any) -> bool:
        known = holds.get(id(thing))
        if known is None:
            holds[id(thing)] = False  # ends cycles
            known = _is_trained(thing, ids) or any(map(holds_trained, _submodules(thing)))
            holds[id(thing)] = known
        return known

    candidates = [m for m in live_instances(module) if holds_trained(m)]
    inner = {id(child) for m in candidates for child in _submodules(m)}
    return [m for m in candidates if id(m) not in inner]


def children_of(roots: Iterable[Any]) -> list[Any]:
    """The next level, for containers that are never called themselves."""
    return [child for root in roots for child in _submodules(root)]
