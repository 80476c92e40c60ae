"""The end of a run that had no collector: its summary, from the step log, in a process of its own."""

from __future__ import annotations

import os
from pathlib import Path

from traceml_ai.collect.notes import Guard, Notes
from traceml_ai.collect.publish import Publisher
from traceml_ai.collect.rebuild import rebuild
from traceml_ai.launch.say import say
from traceml_ai.launch.tell import tell
from traceml_ai.schema.summary import encode
from traceml_ai.spool.recording import remove
from traceml_ai.spool.runfolder import SUMMARY_FILE, read_manifest

NOTHING_SAMPLED = (
    "The process recorded itself, without a collector beside it: processor and memory use and the exit "
    "code are not known."
)


def finish(folder: str, end_ns: int) -> None:
    """Write and show the summary of a run folder whose process is about to end; never raises."""
    Guard(Notes(say))("the summary", _finish, Path(folder), end_ns)


def _finish(folder: Path, end_ns: int) -> None:
    manifest = read_manifest(folder)
    summary = rebuild(manifest, over_ns=end_ns, remark=NOTHING_SAMPLED)
    publisher = Publisher(folder, lambda: None, Notes(say))
    if publisher.write(SUMMARY_FILE, encode(summary)) is None:
        return
    tell(summary, publisher, as_json=False, environ=os.environ)
    remove(None if manifest.spool is None else Path(manifest.spool))
