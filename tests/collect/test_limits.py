"""What a process may use, from fixture trees of `/proc` and `/sys/fs/cgroup`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from traceml_ai.collect.files import Files
from traceml_ai.collect.limits import CpuLimit, memory_limit, read_machine, usable_cpus
from traceml_ai.collect.notes import Notes

GIB = 1 << 30
V2 = "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
V1 = (
    "31 20 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "32 20 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)
Tree = Callable[[Mapping[str, str]], Files]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Build a file system out of paths and contents."""

    def build(contents: Mapping[str, str]) -> Files:
        for path, text in contents.items():
            file = tmp_path / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return Files(tmp_path)

    return build


def v2(group: str, files: Mapping[str, str], mounts: str = V2) -> dict[str, str]:
    below = {f"/sys/fs/cgroup/{path}": text for path, text in files.items()}
    return {"/proc/self/cgroup": f"0::{group}\n", "/proc/self/mountinfo": mounts, **below}


def v1(group: str, files: Mapping[str, str]) -> dict[str, str]:
    below = {f"/sys/fs/cgroup/{path}": text for path, text in files.items()}
    groups = f"5:cpu,cpuacct:{group}\n4:memory:{group}\n0::/\n"
    return {"/proc/self/cgroup": groups, "/proc/self/mountinfo": V1, **below}


def cpus(files: Files, environ: Mapping[str, str] | None = None, affinity: int = 8) -> CpuLimit:
    return usable_cpus(files, environ or {}, host_cpus=8, affinity=affinity)


def test_without_limits_the_host_counts(tree: Tree) -> None:
    assert cpus(tree({})) == (8, "host")
    assert memory_limit(tree({})) is None


def test_affinity_counts(tree: Tree) -> None:
    assert cpus(tree({}), affinity=3) == (3, "affinity")


def test_a_quota_of_version_2(tree: Tree) -> None:
    files = tree(v2("/job", {"job/cpu.max": "200000 100000\n", "job/memory.max": f"{GIB}\n"}))

    assert cpus(files) == (2, "cgroup v2 quota")
    assert memory_limit(files) == GIB


def test_a_quota_of_version_1(tree: Tree) -> None:
    files = tree(
        v1(
            "/job",
            {
                "cpu,cpuacct/job/cpu.cfs_quota_us": "150000\n",
                "cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
                "memory/job/memory.limit_in_bytes": f"{GIB}\n",
            },
        )
    )

    assert cpus(files) == (1.5, "cgroup v1 quota")
    assert memory_limit(files) == GIB


def test_half_a_processor(tree: Tree) -> None:
    assert cpus(tree(v2("/job", {"job/cpu.max": "50000 100000"}))).cpus == 0.5


def test_max_is_no_limit(tree: Tree) -> None:
    files = tree(v2("/job", {"job/cpu.max": "max 100000\n", "job/memory.max": "max\n"}))

    assert cpus(files).source == "host"
    assert memory_limit(files) is None


def test_minus_one_is_no_limit(tree: Tree) -> None:
    quota = {"cpu,cpuacct/job/cpu.cfs_quota_us": "-1\n", "cpu,cpuacct/job/cpu.cfs_period_us": "100000\n"}

    assert cpus(tree(v1("/job", quota))).source == "host"


def test_a_limit_two_levels_up_counts(tree: Tree) -> None:
    files = tree(
        v2("/slurm/job_7/step_0", {"slurm/cpu.max": "400000 100000", "slurm/memory.max": str(2 * GIB)})
    )

    assert cpus(files) == (4, "cgroup v2 quota")
    assert memory_limit(files) == 2 * GIB


def test_the_smallest_of_nested_limits_counts(tree: Tree) -> None:
    limits = {
        "a/cpu.max": "300000 100000",
        "a/b/cpu.max": "500000 100000",
        "a/b/c/cpu.max": "max 100000",
        "a/memory.max": str(3 * GIB),
        "a/b/memory.max": str(GIB),
        "a/b/c/memory.max": "max",
    }
    files = tree(v2("/a/b/c", limits))

    assert cpus(files).cpus == 3
    assert memory_limit(files) == GIB


def test_a_container_sees_its_own_group_at_the_mount_point(tree: Tree) -> None:
    mounts = "30 20 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"

    assert cpus(tree(v2("/docker/abc", {"cpu.max": "100000 100000"}, mounts))).cpus == 1


def test_a_group_outside_of_what_is_mounted_falls_back_to_the_mount_point(tree: Tree) -> None:
    assert cpus(tree(v2("/../other", {"cpu.max": "100000 100000"}))).cpus == 1


@pytest.mark.parametrize("text", ["", "max", "x y", "100000 0", "-5 100000"])
def test_an_odd_file_is_no_limit(tree: Tree, text: str) -> None:
    assert cpus(tree(v2("/job", {"job/cpu.max": text}))).source == "host"


def test_what_the_batch_system_says_counts(tree: Tree) -> None:
    assert cpus(tree({}), {"SLURM_CPUS_PER_TASK": "2"}) == (2, "SLURM_CPUS_PER_TASK")


@pytest.mark.parametrize("text", ["", "many", "0", "-1"])
def test_what_the_batch_system_can_not_mean_does_not(tree: Tree, text: str) -> None:
    assert cpus(tree({}), {"SLURM_CPUS_PER_TASK": text}).source == "host"


def test_the_smallest_of_all_kinds_of_limits_counts(tree: Tree) -> None:
    files = tree(v2("/job", {"job/cpu.max": "250000 100000"}))

    assert cpus(files, {"SLURM_CPUS_PER_TASK": "4"}, affinity=3) == (2.5, "cgroup v2 quota")


def test_a_limit_beyond_the_machine_is_no_limit(tree: Tree) -> None:
    files = tree(
        {"/proc/meminfo": "MemTotal: 1048576 kB\n"}
        | v1("/job", {"memory/job/memory.limit_in_bytes": "9223372036854771712"})
    )

    machine = read_machine(files, {}, host_cpus=8, affinity=8)

    assert (machine.memory_total_bytes, machine.memory_limit_bytes) == (GIB, None)


def test_a_machine_of_which_nothing_can_be_read_is_the_host(tree: Tree) -> None:
    machine = read_machine(tree({}), {}, host_cpus=8, affinity=8)

    assert (machine.usable_cpus, machine.memory_total_bytes, machine.memory_limit_bytes) == (8, None, None)


def test_a_forbidden_file_is_n_a_and_said_once(tmp_path: Path) -> None:
    class Forbidden(type(tmp_path)):  # type: ignore[misc]
        def read_text(self, *_: object, **__: object) -> str:
            raise PermissionError(13, "Permission denied")

    notes = Notes()
    files = Files(Forbidden(tmp_path), notes)

    assert files.text("/proc/12/smaps_rollup") is None
    assert files.text("/proc/13/smaps_rollup") is None
    assert notes.messages() == ["/proc/<pid>/smaps_rollup can't be read (Permission denied): n/a"]


def test_this_machine_can_be_read() -> None:
    machine = read_machine(Files(), {})

    assert 0 < machine.usable_cpus <= machine.host_cpus
    assert machine.memory_total_bytes is not None
    assert machine.memory_total_bytes > GIB // 4
