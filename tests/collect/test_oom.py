from __future__ import annotations

from pathlib import Path

import pytest

from traceml_ai.collect.files import Files
from traceml_ai.collect.oom import OomWatch

V2 = ("0::/job\n", "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "memory.events")
V1 = ("4:memory:/job\n", "32 20 0:28 / /sys/fs/cgroup rw - cgroup cgroup rw,memory\n", "memory.oom_control")


@pytest.mark.parametrize(("groups", "mounts", "name"), [V2, V1])
def test_kills_in_our_own_group_are_counted(tmp_path: Path, groups: str, mounts: str, name: str) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups)
    (tmp_path / "proc/self/mountinfo").write_text(mounts)
    counter = tmp_path / "sys/fs/cgroup/job" / name
    counter.parent.mkdir(parents=True)
    counter.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    watch = OomWatch(Files(tmp_path))

    assert watch.kills() == 0

    counter.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n")

    assert watch.kills() == 2


def test_without_a_group_the_machines_counter_is_taken(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/vmstat").write_text("nr_free_pages 7\noom_kill 1\n")
    watch = OomWatch(Files(tmp_path))
    (tmp_path / "proc/vmstat").write_text("oom_kill 2\n")

    assert watch.kills() == 1


def test_without_any_counter_it_is_not_known(tmp_path: Path) -> None:
    assert OomWatch(Files(tmp_path)).kills() is None
