"""However a program imports torch and starts processes: it runs as ever, and what trains is recorded."""

from __future__ import annotations

import concurrent.futures
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from traceml_ai.hook import folder

TRAIN = """
    def train(steps=60, **more):
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        torch.set_num_threads(1)
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for (x,) in DataLoader(TensorDataset(torch.randn(4 * steps, 8)), batch_size=4, **more):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
        return loss.item().hex()

    def logs():
        import os
        return sorted(n for n in os.listdir(os.environ["TRACEML_SPOOL"]) if n.startswith("steps-"))
"""

PROGRAMS = {
    "torch_in_a_thread": """
        import threading
        thread = threading.Thread(target=lambda: __import__("torch"))
        thread.start()
        thread.join()
        print(train())
    """,
    "torch_looked_for_first": """
        import importlib.util, sys
        sys.modules["torch"] = None
        try:
            import torch
        except ImportError as error:
            print(error)
        del sys.modules["torch"]
        spec = importlib.util.find_spec("torch")
        print(spec.name, type(spec.loader).__name__, importlib.util.find_spec("no_such_thing"))
        print(train(), [type(f).__name__ for f in sys.meta_path])
        print(type(sys.modules["torch"].__loader__).__name__, sorted(vars(sys.modules["torch"].__loader__)))
    """,
    "no_torch": """
        import sys
        print([m for m in sys.modules if "traceml" in m or m == "sitecustomize"], len(sys.path_hooks))
    """,
    "workers": """
        if __name__ == "__main__":
            for context in ("fork", "spawn", "forkserver"):
                workers = 2 if context == "fork" else 1
                print(train(num_workers=workers, multiprocessing_context=context), len(logs()))
    """,
    "two_spawned": """
        def work(rank):
            train(40 + rank)

        if __name__ == "__main__":
            import torch.multiprocessing as mp
            mp.spawn(work, nprocs=2)
            print(len(logs()))
    """,
    "forked": """
        if __name__ == "__main__":
            import multiprocessing as mp
            import torch
            process = mp.get_context("fork").Process(target=train)
            process.start()
            process.join()
            print(process.exitcode, len(logs()))
    """,
    "forked_while_training": """
        if __name__ == "__main__":
            import multiprocessing as mp
            train(50)
            process = mp.get_context("fork").Process(target=train)
            process.start()
            process.join()
            print(process.exitcode, len(logs()), train(30))
    """,
    "api": """
        import traceml_ai as traceml
        import traceml as alias
        traceml.init()
        alias.init(mode="auto")
        with alias.trace_step(), traceml.phase("x"):
            pass
        print(train(), list(traceml.wrap_dataloader_fetch([1, 2])))
    """,
    "disabled": """
        import gc, threading, os
        import traceml_ai as traceml
        traceml.init()
        with traceml.trace_step():
            print(train())
        import torch
        from torch.utils.data import DataLoader
        functions = [DataLoader.__iter__, torch.utils.data.dataloader._BaseDataLoaderIter.__next__]
        functions += [torch.save, torch.autograd.backward, torch.autograd.grad, torch.optim.SGD.step]
        print([f.__code__.co_filename.split("site-packages")[-1] for f in functions])
        print([str(c) for c in gc.callbacks if "traceml" in str(c)], threading.active_count())
        print(traceml.summary(), traceml.final_summary(), traceml.wrap_dataloader_fetch([1]))
    """,
    "memory": """
        import json, resource, gc
        def rss():
            with open("/proc/self/status") as file:
                return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
        train(200)
        before = rss()
        train(20_000)
        train(200)
        print(before, rss())
    """,
}
PATIENCE_S = 120


class Ended(NamedTuple):
    code: int
    stdout: str
    stderr: str
    summary: dict[str, Any] | None


class Pair(NamedTuple):
    plain: Ended | None
    traced: Ended


def run(folder: Path, command: list[str], env: Mapping[str, str] | None = None) -> Ended:
    folder.mkdir(parents=True, exist_ok=True)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TRACEML_")}
    ended = subprocess.run(
        command,
        cwd=folder,
        env={**clean, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    path = folder / "logs" / "one" / "final_summary.json"
    summary = json.loads(path.read_bytes()) if path.exists() else None
    return Ended(ended.returncode, ended.stdout, ended.stderr, summary)


def traceml(*words: str) -> list[str]:
    return [sys.executable, "-m", "traceml_ai", "run", "--logs-dir", "logs", "--run-name", "one", *words]


def write(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    folder = tmp_path_factory.mktemp("start")

    def one(name: str, *, traced: bool) -> Ended:
        where = folder / name / ("traced" if traced else "plain")
        path = write(where, "train.py", textwrap.dedent(TRAIN) + textwrap.dedent(PROGRAMS[name]))
        env = {} if traced else {"TRACEML_SPOOL": str(where), "TRACEML_DISABLED": "1"}
        words = ["--disable-traceml"] if name == "disabled" else []
        return run(where, traceml(*words, str(path)) if traced else [sys.executable, str(path)], env)

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        traced = {n: pool.submit(one, n, traced=True) for n in PROGRAMS}
        plain = {n: pool.submit(one, n, traced=False) for n in PROGRAMS if n not in ONLY_TRACED}
        return {n: Pair(plain[n].result() if n in plain else None, traced[n].result()) for n in PROGRAMS}


# What they print shows nothing that plain Python could be compared with.
ONLY_TRACED = {"two_spawned", "forked", "forked_while_training"}
OTHER_OUTPUT = ONLY_TRACED | {"workers", "memory"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_ends_as_ever(programs: dict[str, Pair], name: str) -> None:
    pair = programs[name]

    assert pair.plain is None or pair.plain.code == 0, pair.plain
    assert pair.traced.code == 0, pair.traced.stderr
    assert "Traceback" not in pair.traced.stderr


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in OTHER_OUTPUT])
def test_the_program_prints_the_same(programs: dict[str, Pair], name: str) -> None:
    pair = programs[name]

    assert pair.plain is not None
    assert pair.traced.stdout == pair.plain.stdout


RECORDED = {
    "torch_in_a_thread": 60,
    "torch_looked_for_first": 60,
    "workers": 180,
    "forked": 60,
    "memory": 20_400,
}


@pytest.mark.parametrize("name", RECORDED)
def test_every_step_is_recorded(programs: dict[str, Pair], name: str) -> None:
    summary = programs[name].traced.summary

    assert summary is not None
    assert summary["run"]["steps"] == RECORDED[name]


def test_loader_workers_make_no_log(programs: dict[str, Pair]) -> None:
    assert [line.split()[1] for line in programs["workers"].traced.stdout.splitlines()] == ["1"] * 3
    printed = "".join(end.stdout for end in programs["workers"] if end is not None)
    assert len({line.split()[0] for line in printed.splitlines()}) == 1


def test_each_process_that_trains_makes_a_log(programs: dict[str, Pair]) -> None:
    assert programs["two_spawned"].traced.stdout == "2\n"
    assert programs["forked"].traced.stdout == "0 1\n"
    assert programs["forked_while_training"].traced.stdout.startswith("0 2 ")
    summary = programs["two_spawned"].traced.summary
    assert summary is not None
    assert len(summary["step_time"]["ranks"]) == 2


def test_disabled_there_is_nothing(programs: dict[str, Pair]) -> None:
    ended = programs["disabled"].traced

    assert ended.summary is None
    assert "traceml" not in ended.stdout
    assert ended.stderr == ""


def test_the_training_process_grows_by_less_than_5_mb(programs: dict[str, Pair]) -> None:
    """Twenty thousand steps; what plain Python grew by is taken off."""
    sizes = [end.stdout.split() for end in programs["memory"] if end is not None]
    grown = [int(after) - int(before) for before, after in sizes]

    assert grown[1] - grown[0] < 5 * 1024
    traced = programs["memory"][1]
    assert traced is not None
    assert traced.summary is not None
    # What it took to begin: our modules, and the step log in memory.
    assert 1 << 20 < traced.summary["overhead"]["memory_bytes"] < 8 << 20


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_a_python_that_takes_no_hook_runs_unharmed_and_it_is_said(tmp_path: Path, flag: str) -> None:
    path = write(tmp_path, "train.py", "import sys; print(sys.flags.no_site, sys.path)")

    plain = run(tmp_path, [sys.executable, flag, str(path)])
    traced = run(tmp_path, traceml("--", sys.executable, flag, str(path)))

    # Without `site` nobody takes the hook's folder off the path again; it holds no other module.
    hook = f"{folder()!r}, "
    assert (traced.code, traced.stdout.replace(hook, "")) == (0, plain.stdout)
    assert traced.summary is not None
    said = " ".join(traced.summary["warnings"])
    assert flag in said, said


@pytest.mark.parametrize(
    "text", ["print('theirs')", "raise LookupError('theirs')", "import torch; print('t')"]
)
def test_the_users_sitecustomize_runs_as_ever(tmp_path: Path, text: str) -> None:
    write(tmp_path / "site", "sitecustomize.py", text)
    program = "import sys; print('sitecustomize' in sys.modules, sys.path[1:]); print(train())"
    path = write(tmp_path, "train.py", textwrap.dedent(TRAIN) + program)
    env = {"PYTHONPATH": str(tmp_path / "site")}

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        both = [pool.submit(run, tmp_path, c, env) for c in ([sys.executable, str(path)], traceml(str(path)))]
        plain, traced = (each.result() for each in both)

    # The launcher and collector is a Python process too, and runs it before it starts the program.
    first = text.count("print") * (plain.stdout.splitlines()[0] + "\n")
    assert traced.stdout in (plain.stdout, first + plain.stdout)
    assert plain.stderr.strip() in traced.stderr
    assert traced.summary is not None
    assert traced.summary["run"]["steps"] == 60


def test_without_a_collector_init_warns_once_and_training_goes_on(tmp_path: Path) -> None:
    calls = "import traceml_ai as t\nt.init()\nt.init()\nwith t.trace_step():\n    print(train())\n"
    path = write(tmp_path, "train.py", textwrap.dedent(TRAIN) + calls)

    ended = run(tmp_path, [sys.executable, str(path)])

    assert ended.code == 0
    assert ended.stderr.count("\n") == 1
    assert ended.stderr.startswith("traceml: no collector")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["train.py"]
