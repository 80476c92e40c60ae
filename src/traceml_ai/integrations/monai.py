"""MONAI's ``SupervisedTrainer``.

Under ``traceml run`` a standard trainer is measured without any of this. The two calls are for
scripts that are started in another way, or that want to say it::

    from traceml_ai.integrations import monai as traceml_monai

    traceml_monai.init()
    trainer = SupervisedTrainer(..., train_handlers=[traceml_monai.TraceMLHandler()])
"""

from __future__ import annotations

import sys
from typing import Any

from traceml_ai import api
from traceml_ai.integrations import _monai_attach as attaching
from traceml_ai.integrations._monai_readings import TRAINERS
from traceml_ai.probe import session as sessions

__all__ = ["TraceMLHandler", "adapt", "init"]


def init() -> None:
    """Measure MONAI in this process. Optional under ``traceml run``; repeating it does nothing.

    Raises:
        UsageError: This process was initialised before in a way that does not go with it.
    """
    api.configure("auto")
    adapt(TRAINERS)


def adapt(module: str) -> None:
    """Have the trainers tell what they do; called when their module was imported.

    Args:
        module: ``"monai.engines.trainer"``.
    """
    session = sessions.current
    if session is not None and {module, "ignite.engine.engine"} <= sys.modules.keys():
        attaching.install(session)


class TraceMLHandler:
    """Has TraceML measure the trainer it is attached to; without a collector it does nothing.

    Args:
        batch_scoped: Also measure a ``GanTrainer``, an ``AdversarialTrainer``, and trainers with an
            iteration of their own, one step for each batch. A standard trainer is measured by its
            updates either way.

    Example:
        >>> from traceml_ai.integrations import monai as traceml_monai
        >>> handlers = [traceml_monai.TraceMLHandler()]
    """

    def __init__(self, *, batch_scoped: bool = False) -> None:
        self.batch_scoped = batch_scoped

    def attach(self, engine: Any) -> None:
        """Measure an engine, or say once why it can't be.

        Args:
            engine: The trainer; MONAI calls this for each of its ``train_handlers``.
        """
        session = sessions.current
        try:
            attaching.claim(engine, batch_scoped=self.batch_scoped)
        except Exception as error:  # noqa: BLE001 - ours must not become the training's
            if session is not None:
                session.st.fail("monai", error)
