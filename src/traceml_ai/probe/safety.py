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


def call_safely(st: Any, probe: str, call: Callable[..., Any], *args: Any) -> Any:
    """Call something of ours; an error of it turns measurement off.

    Args:
        st: The step state.
        probe: What failed, should it fail.
        call: What to call.
        *args: What to call it with.

    Returns:
        What the call returns, or None where it failed.
    """
    try:
        return call(*args)
    except Exception as error:  # noqa: BLE001 - ours must not become the user's
        st.fail(probe, error)
        return None


def name_of(error: BaseException) -> str:
    """What an error says of itself."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
