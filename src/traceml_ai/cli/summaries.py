"""Finding a run's summary: the file, the file in a run folder, or rebuilt from the step log."""

from __future__ import annotations

import contextlib
from pathlib import Path

from traceml_ai.collect.notes import Notes
from traceml_ai.collect.rebuild import rebuild
from traceml_ai.collect.tail import Tail
from traceml_ai.errors import TraceMLError
from traceml_ai.report.card import render_card
from traceml_ai.schema.summary import Summary, decode, encode
from traceml_ai.spool.atomic import write_atomic
from traceml_ai.spool.place import SPOOL_PREFIX
from traceml_ai.spool.recording import remove
from traceml_ai.spool.runfolder import (
    MANIFEST_FILE,
    SUMMARY_FILE,
    TEXT_FILE,
    Manifest,
    is_alive,
    read_manifest,
)


def find_summary(path: Path) -> Summary:
    """Return the summary a path leads to.

    Args:
        path: A summary file or a run folder.

    Raises:
        TraceMLError: There is none, and none can be made.
    """
    if not path.is_dir():
        return read_summary(path)
    written = _written(path)
    if written is not None and written.run.status != "running":
        return written
    if not (path / MANIFEST_FILE).exists():
        if written is not None:
            return written
        raise TraceMLError(f"{path} is no run folder: there is no {SUMMARY_FILE} or {MANIFEST_FILE} in it")
    manifest = read_manifest(path)
    if is_alive(manifest.launcher_pid, manifest.launcher_birth) and written is not None:
        return written
    return _rebuilt(path, manifest, written)


def read_summary(path: Path) -> Summary:
    """Return the summary in a file.

    Raises:
        TraceMLError: It can't be read.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TraceMLError(f"can't read {path} ({error.strerror})") from None
    return decode(data, source=str(path))


def _written(folder: Path) -> Summary | None:
    path = folder / SUMMARY_FILE
    return read_summary(path) if path.exists() else None


def _rebuilt(folder: Path, manifest: Manifest, written: Summary | None) -> Summary:
    """Rebuild, or make do with the last one the collector wrote when the step log is gone."""
    try:
        summary = rebuild(manifest)
    except TraceMLError:
        if written is None:
            raise
        return written
    if summary.run.status != "running":
        _keep(folder, manifest, summary)
    return summary


def _keep(folder: Path, manifest: Manifest, summary: Summary) -> None:
    """Put a dead run's summary where it belongs; then its step log has served."""
    with contextlib.suppress(OSError):  # somebody else's run, a read-only disk: it was shown
        write_atomic(folder / TEXT_FILE, render_card(summary).encode())
        write_atomic(folder / SUMMARY_FILE, encode(summary))
        _keep_steps(folder, manifest)
        # The manifest is a file like any other: what it names is only removed when it is a spool.
        if manifest.spool is not None and Path(manifest.spool).name.startswith(SPOOL_PREFIX):
            remove(Path(manifest.spool))


def _keep_steps(folder: Path, manifest: Manifest) -> None:
    """Keep the steps too, as the collector would have done."""
    from traceml_ai.export.steps import STEPS_FILE, encode_steps, kept_steps, rank_steps

    tail = Tail(None if manifest.spool is None else Path(manifest.spool), Notes())
    tail.finish()
    steps = kept_steps(rank_steps(tail.inputs()), manifest.start_ns)
    if len(steps.rows):
        write_atomic(folder / STEPS_FILE, encode_steps(steps))
