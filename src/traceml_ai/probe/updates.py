"""Did an ``optimizer.step()`` take effect?

Wrappers exist whose ``step()`` updates only every N-th call. A parameter's version counter tells:
in-place updates raise it. An optimizer that writes through ``.data`` does not; for it a few values
are compared during its first steps (on the CPU only, elsewhere that would synchronise), and once
it is known to write so, every call counts.
"""

from __future__ import annotations

import weakref
from typing import Any

_COMPARED_CALLS = 8
_COMPARED_VALUES = 64


class Watch:
    """Follows one optimizer through one parameter of it.

    Args:
        optimizer: Any object with ``param_groups`` as ``torch.optim.Optimizer`` has them.
    """

    __slots__ = (
        "_calls",
        "_compared",
        "_ref",
        "_values",
        "_version",
        "_writes_data",
        "bare",
        "optimizer",
        "versioned",
    )

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = weakref.ref(optimizer)
        self._ref: Any = None
        self._version = 0
        self.versioned = False
        self.bare = False  # no parameter had a gradient when we looked
        self._writes_data = False
        self._compared = False
        self._values: Any = None
        self._calls = 0

    @property
    def parameter(self) -> Any:
        """A weak reference to the parameter that is followed, or None."""
        return self._ref

    def is_stale(self) -> bool:
        """Whether the parameter is gone or has no gradient any more."""
        parameter = self._ref() if self._ref is not None else None
        return parameter is None or parameter.grad is None

    def look(self) -> None:
        """Remember how the parameter is before the step."""
        parameter = self._ref() if self._ref is not None else None
        if parameter is None or parameter.grad is None:
            parameter = self._find()
            if parameter is None:
                self._ref = None
                return
            self._ref = weakref.ref(parameter)
        self.bare = parameter.grad is None
        self._version = parameter._version  # noqa: SLF001
        if not self.versioned and self._calls < _COMPARED_CALLS:
            self._calls += 1
            self._values = _some_values(parameter)

    def changed(self) -> bool:
        """Whether the step since `look` updated the parameter; True where it can't be known."""
        parameter = self._ref() if self._ref is not None else None
        if parameter is None:
            return True
        if parameter._version != self._version:  # noqa: SLF001
            self.versioned = True
            self._values = None
            return True
        if self.versioned:
            return False
        values, self._values = self._values, None
        if values is None:
            return self._writes_data or not self._compared
        self._compared = True
        if bool((values == _some_values(parameter)).all()):
            return False
        self._writes_data = True
        return True

    def _find(self) -> Any:
        """The first parameter with a gradient, else the first that wants one."""
        optimizer = self.optimizer()
        if optimizer is None:
            return None
        wanted = None
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    return parameter
                if wanted is None and parameter.requires_grad:
                    wanted = parameter
        return wanted


def _some_values(parameter: Any) -> Any:
    """A copy of a few values of a CPU parameter; None elsewhere."""
    if parameter.device.type != "cpu" or parameter.layout.__repr__() != "torch.strided":
        return None
    return parameter.detach().flatten()[:_COMPARED_VALUES].clone()
