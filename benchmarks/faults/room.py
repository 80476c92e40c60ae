"""Where a struck run lives: it starts the command, tells how it ended, and stays until it is let go.

    python room.py SPEC.json      (the driver starts it, in a mount namespace of its own where it may)

Meanwhile the driver looks at the room's files under ``/proc/<room>/root``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    for point, size in spec["mounts"].items():
        Path(point).mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "faults", point], check=True)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):  # ignored in the background of a shell
        signal.signal(number, signal.SIG_DFL)
    folder = Path(spec["folder"])
    environ = {**os.environ, **spec["environ"]}
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        processes = [
            subprocess.Popen(
                command,
                cwd=folder,
                env={**environ, **more},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
            for command, more in spec["commands"]
        ]
    _tell(folder / "started", [process.pid for process in processes])
    codes = [process.wait() for process in processes]
    _tell(folder / "ended", [time.monotonic_ns(), codes])
    sys.stdin.read()


def _tell(path: Path, what: object) -> None:
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(json.dumps(what))
    temporary.replace(path)


main()
