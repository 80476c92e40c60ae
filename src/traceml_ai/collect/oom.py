"""Did the kernel kill for lack of memory? Counters before and after tell."""

from __future__ import annotations

from traceml_ai.collect.cgroups import UNIFIED, ancestry
from traceml_ai.collect.files import Files


class OomWatch:
    """Compares the out-of-memory counters with those at the start of the run.

    The kernel counts a kill in the group of the process it killed, whichever level ran out, so this
    process's own group is enough. On the root group, which has no counter, the whole machine's is used.

    Args:
        files: The file system.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._before = self._count()

    def kills(self) -> int | None:
        """Return how many processes were killed since, ``None`` where no counter can be read."""
        now = self._count()
        return None if now is None or self._before is None else max(0, now - self._before)

    def _count(self) -> int | None:
        """Return the counter: ``memory.events`` (v2), ``memory.oom_control`` (v1), else ``/proc/vmstat``."""
        for controller, name in ((UNIFIED, "memory.events"), ("memory", "memory.oom_control")):
            for folder in ancestry(self._files, controller)[:1]:
                count = self._files.keyed(f"{folder}/{name}").get("oom_kill")
                if count is not None:
                    return count
        return self._files.keyed("/proc/vmstat").get("oom_kill")
