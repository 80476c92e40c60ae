"""Keep TraceML's frames out of ``torch.compile``.

Called from inside a compiled region's surroundings, the compiler would take a frame of ours for the
user's code: graphs would get other input names and further breaks. Each code object of ours is
marked to be skipped; what it calls is compiled as ever. The marking is the compiler's own, through
``torch._C``, and does not import ``torch._dynamo``. A torch that spells it differently is left alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

_PACKAGE = "traceml_ai"


def hide_from_compilers(torch: Any) -> None:
    """Mark every code object of this package that is loaded so far."""
    try:
        frames = torch._C._dynamo.eval_frame  # noqa: SLF001
        skip = frames._FrameExecStrategy(  # noqa: SLF001
            frames._FrameAction.SKIP,  # noqa: SLF001
            frames._FrameAction.DEFAULT,  # noqa: SLF001
        )
        for code in _loaded_codes():
            frames.set_code_exec_strategy(code, skip)
    except (AttributeError, TypeError):
        return


def _loaded_codes() -> Iterator[CodeType]:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == _PACKAGE:
            for thing in list(vars(module).values()):
                if getattr(thing, "__module__", None) == name:
                    yield from _codes_of(thing)


def _codes_of(thing: Any) -> Iterator[CodeType]:
    """Code of a function, or of a class's methods, with the functions defined inside them."""
    if isinstance(thing, type):
        for member in vars(thing).values():
            yield from _codes_of(member)
    elif isinstance(thing, (staticmethod, classmethod)):
        yield from _codes_of(thing.__func__)
    elif isinstance(thing, property):
        yield from _codes_of(thing.fget)
    elif isinstance(thing, FunctionType):
        yield from _nested(thing.__code__)
        yield from _codes_of(getattr(thing, "__wrapped__", None))


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
