from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

from traceml_ai.collect.family import children_of, descendants

TREE = {1: [2, 3], 2: [4], 3: [5, 6], 4: [], 5: [7], 6: [], 7: []}


def test_descendants_are_found_at_every_depth() -> None:
    assert sorted(descendants(1, children=TREE.get)) == [2, 3, 4, 5, 6, 7]


def test_what_is_below_another_training_process_is_its_own() -> None:
    assert sorted(descendants(1, without=[3], children=TREE.get)) == [2, 4]


def test_a_loop_left_by_recycled_ids_ends() -> None:
    assert sorted(descendants(1, children={1: [2], 2: [1, 2]}.get)) == [2]


def test_children_of_every_thread_are_listed(tmp_path: Path) -> None:
    for task, text in (("10", "11 12 "), ("13", "14 ")):
        folder = tmp_path / "10" / "task" / task
        folder.mkdir(parents=True)
        (folder / "children").write_text(text)

    assert sorted(children_of(10, proc=tmp_path) or []) == [11, 12, 14]


def test_without_the_kernels_list_the_answer_is_the_same() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        listed = descendants(os.getpid())
        searched = descendants(os.getpid(), children=lambda _pid: None)
        assert child.pid in listed
        assert child.pid in searched
        assert child.pid not in descendants(os.getpid(), without=[child.pid], children=lambda _pid: None)


def test_a_child_started_by_a_thread_is_found() -> None:
    started: list[subprocess.Popen[bytes]] = []
    release = threading.Event()

    def start() -> None:
        started.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
        release.wait()

    thread = threading.Thread(target=start)
    thread.start()
    while not started:
        pass
    try:
        assert started[0].pid in descendants(os.getpid())
    finally:
        release.set()
        thread.join()
        started[0].communicate()


def test_a_process_that_is_gone_has_no_descendants() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        pass

    assert descendants(child.pid) == []
