"""Taking a run elsewhere: trackers, metrics, files for other tools.

* `wandb.log(run)`, `mlflow.log(run)`, `tensorboard.log(writer)`: the main numbers, and the report and
  JSON as artifacts; in a measured training script, or of a finished run by the path of its folder.
* ``traceml run --otlp ENDPOINT``, ``--prometheus PORT``: metrics while the run goes on.
* ``traceml export RUN --parquet|--csv|--perfetto OUT``: every kept step.

The packages these talk to are extras, and only loaded by the one who asked for them.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["numbers"]


def numbers(flat: Mapping[str, float | str]) -> dict[str, float]:
    """Return what of a flat summary is a number, for trackers that take nothing else.

    Args:
        flat: As ``traceml.summary()`` returns it.

    Example:
        >>> mlflow.log_metrics(numbers(traceml.summary()))  # doctest: +SKIP
    """
    return {name: float(value) for name, value in flat.items() if not isinstance(value, str)}
