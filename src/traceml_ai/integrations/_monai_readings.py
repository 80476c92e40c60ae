"""What MONAI's trainer reads of itself, known while it runs.

The trainer reads what it is about to call from itself, and this is all that it says of some parts of a
step. So while it runs its class has a property for each of four attributes: a reading is told, and gives
the real object.

CPython keeps an object's attributes without a ``__dict__`` until one is asked for, and is slower with all
of them from then on (3 us of a small step). Hence the four are looked up before the properties are in
place, and held here. Whatever changes them by name goes through the properties; whether somebody has
changed them by ``vars()`` the object is asked where code of the user's has run. From then on its
``__dict__`` is read.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from collections.abc import Callable
from gc import get_referents
from types import CodeType
from typing import Any

from traceml_ai.integrations._ignite_run import EngineRun
from traceml_ai.probe.columns import (
    T_BACKWARDED,
    T_FETCHED,
    T_HANDLERS,
    T_INFERRING,
    T_OPTIMIZER,
    T_READY,
    T_TRAINING,
    T_ZEROING,
)
from traceml_ai.probe.replaced import Patches
from traceml_ai.schema.step import TOLD

getframe = sys._getframe  # noqa: SLF001
TRAINERS = "monai.engines.trainer"
NAMES = ("prepare_batch", "network", "optimizer", "inferer")
PREPARED, ZEROED = 0, 1  # in `Readings.marks`
_OPEN, _SAMPLES = TOLD["open"], TOLD["samples"]
_FORWARD_BEGIN, _OPTIMIZER_BEGIN = TOLD["forward_begin"], TOLD["optimizer_begin"]

Read = Callable[[Any], Any]
_NOT_HELD = -1


class _Toy:
    """An object with more attributes than it has referents once there is a ``__dict__``."""

    def __init__(self) -> None:
        self.one, self.two, self.three = object(), object(), object()


def _count_tells() -> bool:
    """Whether this Python shows in the number of an object's referents that a ``__dict__`` was made."""
    toy = _Toy()
    before = len(get_referents(toy))
    vars(toy)
    return len(get_referents(toy)) != before


_COUNT_TELLS = _count_tells()


def _keeps_in_place(kind: Any) -> bool:
    """Whether a class leaves to Python where an attribute is."""
    if kind.__getattribute__ is not object.__getattribute__ or kind.__setattr__ is not object.__setattr__:
        return False
    return not any("__getattr__" in vars(c) for c in kind.__mro__)


def _codes(kind: Any) -> tuple[CodeType | None, CodeType | None]:
    """The code of a trainer's iteration, and what of it calls the inferer; None where others read for it."""
    code = getattr(kind._iteration, "__code__", None)  # noqa: SLF001
    if kind.__getattribute__ is not object.__getattribute__ or code is None:
        return None, None
    inner = (c for c in code.co_consts if isinstance(c, CodeType) and "inferer" in c.co_names)
    return code, next(inner, code)


class Reading(property):
    """An attribute of a trainer whose readings are told. What is read and written is the real one."""


class Readings:
    """The readings of one trainer.

    Args:
        run: What is measured of it.
    """

    __slots__ = (
        "_computing",
        "_engine",
        "_iterating",
        "_patches",
        "_run",
        "count",
        "marks",
        "values",
    )

    def __init__(self, run: EngineRun) -> None:
        self._run = run
        self._engine = run.engine
        self._patches = Patches()
        # Where MONAI reads from: what else reads (its user's code, another thread) says nothing.
        self._iterating, self._computing = _codes(type(run.engine))
        self.marks = [0, 0]  # time stamps of a plain step that are not written
        self.values: dict[str, Any] = {}  # by name
        self.count = _NOT_HELD  # of what the trainer refers to: with a ``__dict__``, to that alone

    @property
    def are_direct(self) -> bool:
        """Whether it can be told who reads."""
        return self._iterating is not None

    def begin(self) -> None:
        """The trainer begins to run: have it tell what it reads."""
        self._hold({name: getattr(self._engine, name) for name in NAMES})
        trainer = sys.modules[TRAINERS].SupervisedTrainer
        for name, make in (
            ("prepare_batch", self._prepare_batch),
            ("network", self._network),
            ("optimizer", self._optimizer),
            ("inferer", self._inferer),
        ):
            read: Any = make()
            read._torchdynamo_inline = _PLAIN[name]  # noqa: SLF001 - what a compiler sees in its place
            self._patches.set(trainer, name, Reading(read, *self._changing(name)))

    def end(self) -> None:
        """The trainer has ended: its class is as it was."""
        self._patches.restore()
        self.values = {}

    def _hold(self, values: dict[str, Any]) -> None:
        """Hold the values while they are the trainer's, and it has no ``__dict__``."""
        found = get_referents(self._engine)
        held = {*map(id, values.values())} <= {*map(id, found)}
        if held and _COUNT_TELLS and _keeps_in_place(type(self._engine)):
            self.values, self.count = values, len(found)
        else:
            self._let_go()

    def _let_go(self) -> None:
        """Read the trainer's ``__dict__`` from here on."""
        self.values, self.count = vars(self._engine), _NOT_HELD

    def _check(self) -> None:
        """The trainer refers to more or less than before."""
        if self.count == _NOT_HELD:
            self._let_go()  # to another ``__dict__``, it may be
        else:
            self._hold(self.values)

    # -- what reading does --------------------------------------------------------------------
    # Who reads is asked where code of the user's runs before it: after ``prepare_batch``. Elsewhere the
    # thread tells.

    def _prepare_batch(self) -> Read:
        run, measured, st = self._run, self._engine, self._run.st
        told, clock, tensor = st.told, st.clock, run.tensor

        def read(engine: Any) -> Any:
            if engine is not measured:
                values = vars(engine)
            else:
                if st.stage == T_FETCHED and st.ident == get_ident():
                    try:
                        if len(get_referents(engine)) != self.count:
                            self._check()
                        batch = engine.state.batch
                        found: Any = batch.get("image") if type(batch) is dict else None
                        if type(found) is tensor and found.ndim:
                            told[_SAMPLES] = found.shape[0]
                        else:
                            told[_SAMPLES] = run.samples()
                        told[_OPEN] = clock()
                        st.stage = T_READY
                    except Exception as error:  # noqa: BLE001 - ours must not become the training's
                        st.fail("monai", error)
                else:
                    self._tell("prepare_batch")
                values = self.values
            try:
                return values["prepare_batch"]
            except KeyError:
                raise _missing(engine, "prepare_batch") from None

        return read

    def _network(self) -> Read:
        measured, marks, st = self._engine, self.marks, self._run.st
        clock, iterating = st.clock, self._iterating

        def read(engine: Any) -> Any:
            if engine is not measured:
                values = vars(engine)
            else:
                if st.stage == T_READY and getframe(1).f_code is iterating:
                    marks[PREPARED] = clock()
                    st.stage = T_TRAINING
                    if len(get_referents(engine)) != self.count:
                        self._check()
                elif st.stage != T_INFERRING:  # for the inferer
                    self._tell("network")
                values = self.values
            try:
                return values["network"]
            except KeyError:
                raise _missing(engine, "network") from None

        return read

    def _optimizer(self) -> Read:
        measured, marks, st = self._engine, self.marks, self._run.st
        told, clock = st.told, st.clock

        def read(engine: Any) -> Any:
            if engine is not measured:
                values = vars(engine)
            else:
                stage = st.stage
                if stage == T_TRAINING and st.ident == get_ident():
                    marks[ZEROED] = clock()
                    st.stage = T_ZEROING
                elif stage == T_BACKWARDED and st.ident == get_ident():
                    if len(get_referents(engine)) != self.count:
                        self._check()
                    told[_OPTIMIZER_BEGIN] = clock()
                    st.stage = T_OPTIMIZER
                else:
                    self._tell("optimizer")
                values = self.values
            try:
                return values["optimizer"]
            except KeyError:
                raise _missing(engine, "optimizer") from None

        return read

    def _inferer(self) -> Read:
        measured, st = self._engine, self._run.st
        told, clock = st.told, st.clock

        def read(engine: Any) -> Any:
            if engine is not measured:
                values = vars(engine)
            else:
                if st.stage == T_ZEROING and st.ident == get_ident():
                    told[_FORWARD_BEGIN] = clock()
                    st.stage = T_INFERRING
                else:
                    self._tell("inferer")
                values = self.values
            try:
                return values["inferer"]
            except KeyError:
                raise _missing(engine, "inferer") from None

        return read

    def _tell(self, name: str) -> None:
        """A reading that is not due in a plain step: the books know what it says."""
        st, run = self._run.st, self._run
        try:
            if st.stage < T_HANDLERS and name in run.reads and st.ident == get_ident():
                code = getframe(2).f_code
                if not self.are_direct or code is self._iterating or code is self._computing:
                    run.reads[name]()
            if len(get_referents(self._engine)) != self.count:
                self._check()
        except Exception as error:  # noqa: BLE001 - ours must not become the training's
            st.fail("monai", error)

    # -- what changing does -------------------------------------------------------------------

    def _changing(self, name: str) -> tuple[Callable[[Any, Any], None], Callable[[Any], None]]:
        """Writing and deleting an attribute of a trainer."""

        def write(engine: Any, value: Any) -> None:
            if engine is self._engine:
                self._let_go()
            vars(engine)[name] = value

        def delete(engine: Any) -> None:
            if engine is self._engine:
                self._let_go()
            if name not in vars(engine):
                raise _missing(engine, name)
            del vars(engine)[name]

        return write, delete


# Without variables of a function around them, which the compiler would look for in vain.
_PLAIN: dict[str, Read] = {
    "prepare_batch": lambda engine: engine.__dict__["prepare_batch"],
    "network": lambda engine: engine.__dict__["network"],
    "optimizer": lambda engine: engine.__dict__["optimizer"],
    "inferer": lambda engine: engine.__dict__["inferer"],
}


def _missing(engine: Any, name: str) -> AttributeError:
    message = f"{type(engine).__name__!r} object has no attribute {name!r}"
    return AttributeError(message, name=name, obj=engine)
