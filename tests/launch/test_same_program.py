"""What a program sees of the world under `traceml run` is what it sees under plain Python."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from launch.tool import PYTHON, TRACEML, plain, run, run_folder, script, summary, traced

SHOW = """
    import json, os, signal, sys
    main = sys.modules["__main__"]
    world = {
        "argv": sys.argv, "path": sys.path, "cwd": os.getcwd(), "file": __file__,
        "spec": __spec__ and [__spec__.name, __spec__.origin],
        "main": main.__dict__ is globals(), "package": __package__, "flags": repr(sys.flags),
        "tty": [os.isatty(n) for n in range(3)], "buffered": sys.stdout.line_buffering,
        "group": os.getpgid(0) == os.getpgid(os.getppid()), "umask": os.umask(0o22),
        "signals": [str(signal.getsignal(n)) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)],
        "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())), "orig_argv": sys.orig_argv,
        "environ": sorted(name for name in os.environ if not name.startswith(("TRACEML_", "PYTHONPATH"))),
        "threads": len(os.listdir("/proc/self/task")), "descriptors": sorted(os.listdir("/proc/self/fd")),
        "children": open(f"/proc/self/task/{os.getpid()}/children").read(),
    }
    print(json.dumps(world, indent=1))
"""


def test_a_script_sees_the_same_world(tmp_path: Path) -> None:
    script(tmp_path, SHOW, "deep/show.py")

    under = traced(["deep/show.py", "--args", "-m", "--", ""], tmp_path)

    assert under.stdout == plain(["deep/show.py", "-m", "--", ""], tmp_path).stdout


def test_a_module_with_relative_imports_sees_the_same_world(tmp_path: Path) -> None:
    script(tmp_path, "", "pkg/__init__.py")
    script(tmp_path, "X = 1", "pkg/util.py")
    script(tmp_path, "    from .util import X" + SHOW, "pkg/train.py")

    under = traced(["-m", "pkg.train", "--args", "a"], tmp_path)

    assert under.stdout == plain(["-m", "pkg.train", "a"], tmp_path).stdout
    assert '"package": "pkg"' in under.stdout


def test_a_whole_command_sees_the_same_world(tmp_path: Path) -> None:
    script(tmp_path, SHOW, "show.py")

    under = traced(["--", sys.executable, "-u", "show.py", "--lr", "1"], tmp_path)

    assert under.stdout == plain(["-u", "show.py", "--lr", "1"], tmp_path).stdout


def test_a_script_finds_what_lies_beside_it(tmp_path: Path) -> None:
    script(tmp_path, "print('beside')", "proj/side.py")
    script(tmp_path, "import side", "proj/train.py")

    assert traced(["proj/train.py"], tmp_path).stdout == "beside\n"


def test_what_lies_in_the_working_directory_is_not_imported_by_us(tmp_path: Path) -> None:
    for name in ("numpy", "psutil", "msgspec", "rich"):
        script(tmp_path, "raise SystemExit('imported the user\\'s file')", f"{name}.py")
    script(tmp_path, "print('trained')", "proj/train.py")

    ended = traced(["proj/train.py"], tmp_path)

    assert (ended.returncode, ended.stdout) == (0, "trained\n")
    assert summary(tmp_path)["run"]["status"] == "completed"


def test_standard_input_is_the_programs(tmp_path: Path) -> None:
    script(tmp_path, "import sys; print(sys.stdin.read()[::-1])")

    assert traced(["train.py"], tmp_path, stdin="abc").stdout == "cba\n"


def test_a_script_from_standard_input_runs(tmp_path: Path) -> None:
    ended = traced(["-", "--args", "x"], tmp_path, stdin="import sys; print(sys.argv)")

    assert ended.stdout == "['-', 'x']\n"


def test_the_output_is_the_programs_own_byte_by_byte(tmp_path: Path) -> None:
    script(tmp_path, "import os; [os.write(1, bytes(range(256)) * 4096) for _ in range(8)]")

    with (tmp_path / "out").open("wb") as out:
        subprocess.run([*TRACEML, "run", "train.py"], cwd=tmp_path, stdout=out, check=True, timeout=60)

    assert (tmp_path / "out").read_bytes() == bytes(range(256)) * 4096 * 8


def test_descriptors_of_the_users_shell_reach_the_program(tmp_path: Path) -> None:
    script(tmp_path, "import os; print(os.read(7, 9))")
    (tmp_path / "in").write_text("seven")
    shell = " ".join([*TRACEML, "run", "train.py"])

    assert run(["sh", "-c", f"{shell} 7<in"], tmp_path).stdout == "b'seven'\n"


def test_a_terminal_stays_a_terminal(tmp_path: Path) -> None:
    script(tmp_path, "import sys; print([stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)])")
    master, slave = pty.openpty()

    subprocess.run(
        [*TRACEML, "run", "train.py"], cwd=tmp_path, stdin=slave, stdout=slave, stderr=slave, check=True
    )
    os.close(slave)

    assert b"[True, True, True]" in os.read(master, 65536)


def test_children_that_are_spawned_find_the_script(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
        import multiprocessing as mp

        class Data:
            def __getitem__(self, i): return i * 2

        def work(data): return data[21]

        if __name__ == "__main__":
            for method in ("spawn", "fork", "forkserver"):
                with mp.get_context(method).Pool(1) as pool:
                    print(method, pool.apply(work, (Data(),)))
        """,
    )

    ended = traced(["train.py"], tmp_path)

    assert ended.stdout == "spawn 42\nfork 42\nforkserver 42\n"
    assert ended.stderr.count("traceml: recording to") == 1
    assert summary(tmp_path)["run"]["status"] == "completed"


def test_the_card_leaves_standard_output_alone(tmp_path: Path) -> None:
    script(tmp_path, "print('mine')")

    ended = traced(["train.py", "--run-name", "base"], tmp_path)

    assert ended.stdout == "mine\n"
    assert ended.stderr.startswith("traceml: recording to logs/base\n")
    assert "base" in ended.stderr.splitlines()[1]
    assert "\x1b" not in ended.stderr


@pytest.mark.parametrize("disable", [["--disable-traceml"], []])
def test_disabled_nothing_at_all_is_different(tmp_path: Path, disable: list[str]) -> None:
    script(tmp_path, "import os, sys; print(sorted(os.environ.items()), sys.argv, sys.path)", "show.py")
    env = {} if disable else {"TRACEML_DISABLED": "1"}

    under = run([*TRACEML, "run", *disable, "show.py", "--args", "x"], tmp_path, env=env)

    # The option is the variable: the program's own calls of TraceML's must know of it as well.
    assert under == run([*PYTHON, "show.py", "x"], tmp_path, env={"TRACEML_DISABLED": "1"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["show.py"]


def test_the_files_of_a_run_are_in_its_folder(tmp_path: Path) -> None:
    script(tmp_path, "pass")

    traced(["train.py"], tmp_path)

    assert sorted(path.name for path in run_folder(tmp_path).iterdir()) == [
        "final_summary.json",
        "final_summary.txt",
        "run.json",
    ]
