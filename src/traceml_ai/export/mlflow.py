"""A run's summary in MLflow: figures as metrics, kinds as tags, report and JSON as artifacts.

>>> import mlflow
>>> from traceml_ai.export import mlflow as traceml_mlflow
>>> with mlflow.start_run() as run:  # doctest: +SKIP
...     train()
...     traceml_mlflow.log(run)
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from traceml_ai.export import numbers
from traceml_ai.export.source import FOLDER, tell_of
from traceml_ai.schema.summary import Summary

__all__ = ["log"]


def log(run: Any = None, source: Summary | str | Path | None = None, *, html: bool = True) -> bool:
    """Tell an MLflow run where the time of its steps went.

    Args:
        run: What ``mlflow.start_run()`` returned, or a run's id; ``None``: the active run.
        source: Another run than this process's: a summary, or the path of a run folder or
            ``final_summary.json``.
        html: Attach the HTML report too; needs ``traceml-ai[report]``.

    Returns:
        Whether there was anything to tell: False when this process is not measured.

    Raises:
        TraceMLError: The path leads to no summary.
    """
    import mlflow

    told = tell_of(source, html=html)
    if told is None:
        return False
    run_id = _id_of(mlflow.active_run() or mlflow.start_run() if run is None else run)
    client = mlflow.MlflowClient()
    now_ms = time.time_ns() // 1_000_000
    client.log_batch(
        run_id,
        metrics=[
            mlflow.entities.Metric(name, value, now_ms, 0) for name, value in numbers(told.flat).items()
        ],
        tags=[
            mlflow.entities.RunTag(name.replace("/", "."), kind)
            for name, kind in told.flat.items()
            if isinstance(kind, str)
        ],
    )
    for name, text in told.files.items():
        client.log_text(run_id, text, f"{FOLDER}/{name}")
    return True


def _id_of(run: Any) -> str:
    return run if isinstance(run, str) else str(run.info.run_id)
