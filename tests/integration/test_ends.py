"""However a program ends: the same text, the same exit code, and every closed step is in the log."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from integration.harness import SCRIPTS, both
from traceml_ai.schema.step import INDEX, Flags
from traceml_ai.spool.reader import open_spool

NAMES = [
    node.name
    for node in ast.parse((SCRIPTS / "ends.py").read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("end_")
]
# Closed and aborted steps, where it is not 45 and none: the 45th call of the model fails in step 45.
COUNTS = {
    "end_forward": (44, 1),
    "end_forward_with_a_cause": (44, 1),
    "end_while_handling_another": (88, 2),
    "end_backward": (45, 1),
    "end_backward_of_no_scalar": (45, 1),
    "end_optimizer": (44, 1),
    "end_interrupt_that_is_handled": (44, 1),
    "end_system_exit_with_words": (44, 1),
    "end_logged": (44, 1),
    "end_users_hook": (44, 1),
    "end_users_hook_that_raises": (44, 1),
    "end_group": (44, 1),
    "end_return": (60, 0),
    # Nothing of ours ran after the fetch; the batch was fetched for a step that never closed.
    "end_loss": (45, 1),
    "end_interrupt": (45, 1),
    "end_recursion": (45, 1),
}


class Both(NamedTuple):
    """How one end looked in both ways, and what the step log held."""

    plain: tuple[int, str]
    traced: tuple[int, str]
    steps: int
    aborted: int


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Both]:
    pair = both(SCRIPTS / "ends.py", tmp_path_factory.mktemp("ends"))
    assert pair.plain.code == pair.traced.code == 0, pair.traced.stderr
    logs = _logs(pair.traced.folder / "spool")
    found = {}
    for name in pair.plain.found:
        (_, code, text), (pid, traced, traced_text) = pair.plain.found[name], pair.traced.found[name]
        found[name] = Both((code, _steady(text)), (traced, _steady(traced_text)), *logs.get(pid, (0, 0)))
    return found


def _logs(spool: Path) -> dict[int, tuple[int, int]]:
    found = {}
    for reader in open_spool(spool):
        records = reader.read_rest()
        steps = (records[:, INDEX["flags"]] & int(Flags.TAIL)) == 0
        found[reader.pid] = (int(steps.sum()), reader.header.aborted)
    return found


def _steady(text: str) -> str:
    """Leave out what differs from run to run."""
    return re.sub(r"pid\(?s?\)? \d+|0x[0-9a-f]+|pid=\d+", "N", text)


_HOOKED = pytest.mark.xfail(
    reason="a hook that the program sets later sees the frames of the timed calls", strict=True
)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[_HOOKED] if n.startswith("end_users_hook") else []) for n in NAMES]
)
def test_the_text_on_standard_error_is_the_same(ends: dict[str, Both], name: str) -> None:
    assert ends[name].traced[1] == ends[name].plain[1]


@pytest.mark.parametrize("name", NAMES)
def test_the_exit_code_is_the_same(ends: dict[str, Both], name: str) -> None:
    assert ends[name].traced[0] == ends[name].plain[0]


@pytest.mark.parametrize("name", NAMES)
def test_every_closed_step_is_in_the_log_and_aborted_ones_are_counted(
    ends: dict[str, Both], name: str
) -> None:
    found = ends[name]

    assert (found.steps, found.aborted) == COUNTS.get(name, (45, 0))
