"""Where Lightning's precision plugins call the callbacks around a backward and before an update.

We are told there, ahead of the callbacks: a callback of ours would do, but each that Lightning calls
takes it some five microseconds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from traceml_ai.integrations._lightning_attach import Adapter
from traceml_ai.probe.columns import T_BACKWARD, T_BACKWARDED, T_CALLED, T_OPTIMIZER
from traceml_ai.probe.framework import Window
from traceml_ai.schema.step import TOLD

BACKWARD_BEGIN, BACKWARD_END = TOLD["backward_begin"], TOLD["backward_end"]
OPTIMIZER_BEGIN = TOLD["optimizer_begin"]
Wrapped = Callable[..., Any]
_TELLS = "traceml_tells"


class _Moment(NamedTuple):
    """What is known when a precision plugin calls the callbacks: how it is noted, and how it is told."""

    due: int  # the stage of a plain step that it ends
    stamp: int  # in `Plain.told`
    then: int
    tell: Callable[..., None]


_PRECISION = {
    "pre_backward": _Moment(T_CALLED, BACKWARD_BEGIN, T_BACKWARD, Window.begin_backward),
    "post_backward": _Moment(T_BACKWARD, BACKWARD_END, T_BACKWARDED, Window.end_backward),
    "_after_closure": _Moment(T_BACKWARDED, OPTIMIZER_BEGIN, T_OPTIMIZER, Window.begin_optimizer),
}


def install(adapter: Adapter) -> None:
    """Put the timed calls of a namespace in place."""
    precision = adapter.module("plugins.precision.precision").Precision
    for name, moment in _PRECISION.items():
        adapter.patches.set(precision, name, _telling(adapter, getattr(precision, name), moment))


def tells(precision: Any) -> bool:
    """Whether a precision plugin calls its callbacks where Lightning's do, so that it need not call ours."""
    return all(hasattr(getattr(type(precision), name, None), _TELLS) for name in _PRECISION)


def _telling(adapter: Adapter, inner: Wrapped, moment: _Moment) -> Wrapped:
    """What calls the callbacks: we are told first."""
    st = adapter.session.st
    told, clock = st.told, st.clock
    due, stamp, then, tell = moment

    @functools.wraps(inner)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        fit = adapter.fit
        if fit is not None and fit.precision is self:
            if st.stage == due:
                told[stamp] = clock()
                st.stage = then
            else:
                tell(fit.window, *args, *kwargs.values())
        return inner(self, *args, **kwargs)

    setattr(call, _TELLS, True)
    return call
