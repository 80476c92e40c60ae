"""Plain Ignite engines, such as ``create_supervised_trainer`` builds.

Unlike MONAI's trainers they are only measured when asked for::

    from traceml_ai.integrations import ignite as traceml_ignite

    traceml_ignite.init()
    trainer = create_supervised_trainer(model, optimizer, loss_fn)
    traceml_ignite.TraceMLHandler().attach(trainer)
"""

from __future__ import annotations

import sys
from typing import Any

from traceml_ai import api
from traceml_ai.integrations import _ignite_attach as attaching
from traceml_ai.integrations import _monai_attach as monai_attaching
from traceml_ai.probe import session as sessions

__all__ = ["TraceMLHandler", "init"]


def init() -> None:
    """Measure Ignite in this process. Optional under ``traceml run``; repeating it does nothing.

    Raises:
        UsageError: This process was initialised before in a way that does not go with it.
    """
    api.configure("auto")


class TraceMLHandler:
    """Has TraceML measure the engine it is attached to; without a collector it does nothing.

    Example:
        >>> from traceml_ai.integrations import ignite as traceml_ignite
        >>> handler = traceml_ignite.TraceMLHandler()
    """

    def attach(self, engine: Any) -> None:
        """Measure an engine, or say once why it can't be.

        Args:
            engine: An Ignite ``Engine`` that trains.
        """
        session = sessions.current
        try:
            if _is_of_monai(engine):
                monai_attaching.claim(engine, batch_scoped=True)
            else:
                attaching.claim(engine)
        except Exception as error:  # noqa: BLE001 - ours must not become the training's
            if session is not None:
                session.st.fail("ignite", error)


def _is_of_monai(engine: Any) -> bool:
    workflow = sys.modules.get("monai.engines.workflow")
    return workflow is not None and isinstance(engine, workflow.Workflow)
