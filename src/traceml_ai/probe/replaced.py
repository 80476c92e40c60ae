"""Attributes of classes and modules that are replaced while a process is measured."""

from __future__ import annotations

from typing import Any

_MISSING = object()


class Patch:
    """An attribute of a class or module that was replaced.

    Args:
        owner: The class or module.
        name: Of the attribute.
        before: What the owner's own ``__dict__`` held.
        ours: What is in its place.
    """

    __slots__ = ("before", "is_out", "name", "ours", "owner")

    def __init__(self, owner: Any, name: str, before: object, ours: object) -> None:
        self.owner = owner
        self.name = name
        self.before = before
        self.ours = ours
        self.is_out = False

    def is_in_place(self) -> bool:
        """Whether nobody has replaced it after us."""
        return vars(self.owner).get(self.name) is self.ours

    def take_out(self) -> None:
        """Leave the original for a while; nothing if somebody has replaced ours."""
        if self.is_in_place():
            setattr(self.owner, self.name, self.before)
            self.is_out = True

    def put_back(self) -> None:
        """Have ours in place again if it was taken out; nothing if somebody has replaced the original."""
        if self.is_out and vars(self.owner).get(self.name) is self.before:
            setattr(self.owner, self.name, self.ours)
        self.is_out = False


class Patches:
    """Attributes that were replaced, so that they can be put back in reverse order."""

    def __init__(self) -> None:
        self._replaced: list[Patch] = []

    def set(self, owner: Any, name: str, value: object) -> None:
        """Replace ``owner.name``, remembering what its own ``__dict__`` held."""
        self._replaced.append(Patch(owner, name, vars(owner).get(name, _MISSING), value))
        setattr(owner, name, value)

    def of(self, owner: Any, name: str) -> Patch | None:
        """How an attribute that ``owner`` had itself was replaced; None if it was not."""
        found = (p for p in self._replaced if p.owner is owner and p.name == name)
        return next((p for p in found if p.before is not _MISSING), None)

    def restore(self) -> None:
        """Put everything back that is still ours."""
        for patch in reversed(self._replaced):
            patch.is_out = False
            if not patch.is_in_place():
                continue
            if patch.before is _MISSING:
                delattr(patch.owner, patch.name)
            else:
                setattr(patch.owner, patch.name, patch.before)
        self._replaced.clear()
