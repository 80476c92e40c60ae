"""A run's summary in Weights & Biases: figures in the run's summary, report and JSON as an artifact.

>>> import wandb
>>> from traceml_ai.export import wandb as traceml_wandb
>>> with wandb.init(project="digits") as run:  # doctest: +SKIP
...     train()
...     traceml_wandb.log(run)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from traceml_ai.export.source import FOLDER, tell_of
from traceml_ai.schema.summary import Summary

__all__ = ["log"]


def log(run: Any, source: Summary | str | Path | None = None, *, html: bool = True) -> bool:
    """Tell a W&B run where the time of its steps went. Call it after the training, before ``run.finish()``.

    Args:
        run: What ``wandb.init()`` returned.
        source: Another run than this process's: a summary, or the path of a run folder or
            ``final_summary.json``.
        html: Attach the HTML report too, and show it as a panel; needs ``traceml-ai[report]``.

    Returns:
        Whether there was anything to tell: False when this process is not measured.

    Raises:
        TraceMLError: The path leads to no summary.
    """
    import wandb

    told = tell_of(source, html=html)
    if told is None:
        return False
    run.summary.update(told.flat)
    artifact = wandb.Artifact(f"{FOLDER}-{run.id}", type=FOLDER, description=told.summary.diagnosis.why)
    for name, text in told.files.items():
        with artifact.new_file(name, encoding="utf-8") as file:
            file.write(text)
    run.log_artifact(artifact)
    if told.html is not None:
        run.log({f"{FOLDER}/report": wandb.Html(told.html, inject=False)})
    return True
