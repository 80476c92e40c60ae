"""Errors of ours turn measurement off; they never become the program's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def safely(method: Callable[..., None]) -> Callable[..., None]:
    """For what runs while an exception of the user's is on its way, or inside the interpreter."""

    @functools.wraps(method)
    def safe(self: Any, *args: Any) -> None:
        try:
            if self.ident != -1:
                method(self, *args)
        except Exception as error:  # noqa: BLE001 - ours must not become the user's
            self.fail(method.__name__, error)

    return safe
