"""What a training script may call.

Nothing here is needed under ``traceml run``: a plain loop is recognised from its own calls. These
calls are for those who want to mark the step themselves, name phases of their own, feed data from
something that is not a PyTorch ``DataLoader``, or read the result from inside.

Started without ``traceml run``, `init` looks for the collector that ``traceml serve`` started. Where there
is none every call does nothing, and `init` says so once.
"""

from __future__ import annotations

import os
from _thread import get_ident
from collections.abc import Iterable
from types import TracebackType
from typing import Any, TypeVar

from traceml_ai.errors import UsageError
from traceml_ai.hook import by_script
from traceml_ai.probe import session as sessions
from traceml_ai.probe.columns import (
    BETWEEN,
    FETCHED,
    IDLE,
    OPENED,
    SAMPLES,
    STANDARD_PHASES,
    UPDATED,
    USER_0,
)
from traceml_ai.probe.compilers import hide_from_compilers
from traceml_ai.probe.session import Session, Which
from traceml_ai.probe.sources import TimedIterable
from traceml_ai.probe.state import StepState
from traceml_ai.schema.step import RAW

__all__ = ["final_summary", "init", "phase", "summary", "trace_step", "wrap_dataloader_fetch"]

Item = TypeVar("Item")

_MODES = ("auto", "manual", "selective")
_PATCHES = ("patch_dataloader", "patch_forward", "patch_backward", "patch_optimizer")

_OPEN = RAW["open"]
_configured: tuple[str, Which] | None = None
_by_script = False  # the script called init() itself, not a framework's


def init(
    mode: str = "auto",
    *,
    patch_dataloader: bool | None = None,
    patch_forward: bool | None = None,
    patch_backward: bool | None = None,
    patch_optimizer: bool | None = None,
    standalone: bool = False,
    logs_dir: str | os.PathLike[str] = "logs",
    run_name: str | None = None,
) -> None:
    """Say how this process is measured. Optional; a compatible second call does nothing.

    Started by ``python`` or ``torchrun`` themselves, a process that calls this is recorded by the collector
    that waits for it (``traceml serve``), or by itself with ``standalone``.

    Args:
        mode: ``"auto"`` times loader, forward, backward and optimizer by itself. ``"manual"`` times
            only what `trace_step`, `phase` and `wrap_dataloader_fetch` mark. ``"selective"`` times
            the calls whose ``patch_...`` argument is true.
        patch_dataloader: With ``"selective"``: time the fetches of PyTorch data loaders.
        patch_forward: With ``"selective"``: time the outermost calls of the model.
        patch_backward: With ``"selective"``: time ``backward`` and ``autograd.grad``.
        patch_optimizer: With ``"selective"``: time ``optimizer.step``.
        standalone: Without any collector: keep the step log and write the summary at exit, for notebooks
            and for scripts that are not started by ``traceml run``. Under it this changes nothing.
        logs_dir: With ``standalone``: where run folders are kept.
        run_name: With ``standalone``: the run's folder; default: script, date and time.

    Raises:
        UsageError: An unknown mode, ``patch_...`` arguments with a mode that takes none, a
            second call that asks for something else than the first, or a run name that is taken.
    """
    global _by_script  # noqa: PLW0603 - a process is configured once
    if standalone and _configured is None:
        _check_mode(mode)
        by_script.record_alone(os.fspath(logs_dir), run_name)
    configure(
        mode,
        patch_dataloader=patch_dataloader,
        patch_forward=patch_forward,
        patch_backward=patch_backward,
        patch_optimizer=patch_optimizer,
    )
    _by_script = True


def is_initialised_by_script() -> bool:
    """Whether the script called `init` itself; a framework's own ``init`` does not count."""
    return _by_script


def configure(
    mode: str,
    *,
    patch_dataloader: bool | None = None,
    patch_forward: bool | None = None,
    patch_backward: bool | None = None,
    patch_optimizer: bool | None = None,
) -> None:
    """`init`, called by a framework's integration.

    Raises:
        UsageError: See `init`.
    """
    global _configured  # noqa: PLW0603 - a process is configured once
    given = (patch_dataloader, patch_forward, patch_backward, patch_optimizer)
    which = _which(mode, given)
    if _configured is not None and _configured != (mode, which):
        raise UsageError(
            f"traceml.init(mode={mode!r}) after init(mode={_configured[0]!r}) in the same process: "
            "call init() once, or with the same arguments"
        )
    first = _configured is None
    _configured = (mode, which)
    if first:
        by_script.apply(which)


def _check_mode(mode: str) -> None:
    if mode not in _MODES:
        raise UsageError(f"traceml.init(mode={mode!r}): unknown mode, use one of {', '.join(_MODES)}")


def _which(mode: str, given: tuple[bool | None, ...]) -> Which:
    _check_mode(mode)
    named = [name for name, value in zip(_PATCHES, given, strict=True) if value is not None]
    if mode == "selective":
        return Which(*(bool(value) for value in given))
    if named:
        raise UsageError(
            f"traceml.init(mode={mode!r}, {named[0]}=...): only mode='selective' takes patch_... arguments"
        )
    return Which(*(mode == "auto" for _ in given))


def _active(session: Session | None) -> StepState | None:
    """The step state, if this thread is the one that is measured."""
    if session is None:
        return None
    st = session.st
    return st if get_ident() == st.ident else None


class TracedStep:
    """What `trace_step` returns: a step begins and ends with it."""

    __slots__ = ("_model", "_st")

    def __init__(self, model: Any = None) -> None:
        self._model = model
        self._st: StepState | None = None

    def __enter__(self) -> TracedStep:
        session = sessions.current
        if session is not None:
            st = session.st
            if st.stage == FETCHED and (self._model is None or st.plain_model() is self._model):
                # The fast path of a plain step; like the others it does not ask which thread this is.
                st.raw[_OPEN] = st.clock()
                st.stage = OPENED
                self._st = st
                return self
        self._st = _begin_marked(session or by_script.session_of_process(), self._model) or self._st
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        st = self._st
        if st is None:
            return
        self._st = None
        try:
            if st.stage == UPDATED and kind is None:
                st.close_noted(st.raw, st.clock(), IDLE)
            elif st.ident != -1:
                st.end_marked(failed=kind is not None)
        except Exception as ours:  # noqa: BLE001 - ours must not become the user's
            st.fail("step", ours)


# In a run of plain steps they all share one: making an object each time costs half a microsecond.
_PLAIN = TracedStep()


def trace_step(model: Any = None) -> TracedStep:
    """Mark one training step.

    Marked steps win over inferred ones: from the first one on only they are counted. A step that
    raises is counted as aborted and averaged nowhere. Inside another marked step, on another
    thread or without a collector this does nothing.

    Args:
        model: The model whose outermost calls are the step's forward; without it the model is
            found by itself.

    Returns:
        A context manager.

    Example:
        >>> import traceml_ai as traceml
        >>> with traceml.trace_step():
        ...     pass
    """
    session = sessions.current
    if session is not None:
        st = session.st
        if st.stage == FETCHED and (model is None or st.plain_model() is model):
            return _PLAIN
    return TracedStep(model)


def _begin_marked(session: Session | None, model: Any) -> StepState | None:
    """`trace_step` was entered; returns the step state, or None where it does nothing."""
    if session is None:
        return None
    st = session.st
    if get_ident() != st.ident:
        st.note_foreign()
        return None
    try:
        if model is not None and id(model) not in st.targets and session.which.forward:
            session.models.measure(model)
        return st if st.begin_marked() else None
    except Exception as error:  # noqa: BLE001 - ours must not become the user's
        st.fail("step", error)
        return None


class phase:  # noqa: N801 - used like a function
    """Time a block inside the step under a name of its own.

    Forward, backward and the other phases that happen inside the block keep their own time. At
    most eight different names are kept in a process; ``"h2d"``, ``"forward"``, ``"backward"`` and
    ``"optimizer"`` are the step's own phases. Outside a step this does nothing.

    Args:
        name: The phase's name in the summary.

    Example:
        >>> import traceml_ai as traceml
        >>> with traceml.phase("augment"):
        ...     pass
    """

    __slots__ = ("_before", "_name", "_st")

    def __init__(self, name: str) -> None:
        self._name = name
        self._st: StepState | None = None
        self._before = BETWEEN

    def __enter__(self) -> phase:
        session = sessions.current
        st = _active(session)
        if session is None or st is None:
            return self
        try:
            if st.stage >= FETCHED:
                st.settle()
            if not st.window:
                return self
            column = STANDARD_PHASES.get(self._name)
            if column is None:
                slot = session.user_slot(self._name)
                if slot is None:
                    session.warn("phase", f"phase {self._name!r} is not kept: eight names are in use")
                    return self
                column = USER_0 + slot
            self._before = st.enter(column)
        except Exception as error:  # noqa: BLE001
            st.fail("phase", error)
            return self
        self._st = st
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        st, self._st = self._st, None
        # A step that ended inside the block has taken the books back to the time between steps.
        if st is not None and st.window:
            st.leave_safely(self._before)


def wrap_dataloader_fetch(iterable: Iterable[Item]) -> Iterable[Item]:
    """Time the fetches of a training source that is not a PyTorch ``DataLoader``.

    Args:
        iterable: Anything that can be iterated over: a generator, a list, another library's loader.

    Returns:
        An iterable over the same items. The object itself comes back, with one warning, when it is
        a PyTorch ``DataLoader`` that is timed already, and without a collector.
    """
    session = sessions.current or by_script.session_of_process()
    if session is None:
        return iterable
    loader: type = session.torch.utils.data.DataLoader
    if session.which.loader and isinstance(iterable, loader):
        session.warn(
            "input",
            "wrap_dataloader_fetch() was given a PyTorch DataLoader, which is timed already; "
            "it is used as it is",
            say=True,
        )
        return iterable
    return TimedIterable(iterable)


def count_samples(count: int, *, again: bool) -> bool | None:
    """Count samples for the run whose own batches don't show how many they hold.

    Args:
        count: How many.
        again: Whether earlier ones were counted like this.

    Returns:
        Whether they were counted; False when the run counts its batches itself, None when this
        thread is not measured (yet).
    """
    session = sessions.current
    st = _active(session)
    if session is None or st is None or st.log is None:
        return None
    try:
        if st.stage >= IDLE:
            st.settle()
        if not again and (st.acc[SAMPLES] or st.newest()[SAMPLES]):
            return False
        st.acc[SAMPLES] += count
    except Exception as error:  # noqa: BLE001 - ours must not become the user's
        st.fail("samples", error)
    return True


def final_summary() -> dict[str, Any] | None:
    """The summary of this process so far, with the keys of ``final_summary.json``.

    Computed anew at each call from the steps that were recorded; not meant for the step path.

    Returns:
        The summary as plain values, or None when this process is not measured. A notebook displays the
        dictionary as the run's card.
    """
    whole = _whole()
    if whole is None:
        return None
    from traceml_ai.report.notebook import Shown

    return Shown(whole, whole)


def _whole() -> dict[str, Any] | None:
    session = sessions.current
    if session is None or session.writer is None:
        return None
    from traceml_ai.collect.inside import summarize_process

    return summarize_process(session.spool, session.origin, sessions.run_folder)


def summary() -> dict[str, float | str]:
    """The main numbers so far as a flat mapping that a tracker can log.

    Returns:
        Names such as ``traceml/step_ms`` to numbers and strings; values that were not measured are
        absent. Empty when this process is not measured. A notebook displays the mapping as the run's
        card.
    """
    whole = _whole()
    if whole is None:
        return {}
    from traceml_ai.report.flat import flatten
    from traceml_ai.report.notebook import Shown

    return Shown(flatten(whole), whole)


if sessions.current is not None:
    # This module was not loaded when measuring began.
    hide_from_compilers(sessions.current.torch)
