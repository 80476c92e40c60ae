"""Cases of a script: functions that train and return what must be the same without TraceML."""

from __future__ import annotations

import ast
from pathlib import Path

from scripted import Run


def cases_of(script: Path) -> list[str]:
    """The names of the functions that a script marks as cases, in its order."""
    functions = [n for n in ast.walk(ast.parse(script.read_text())) if isinstance(n, ast.FunctionDef)]
    return [f.name for f in functions if "case" in map(ast.unparse, f.decorator_list)]


def check(case: str, traced: Run, plain: Run) -> None:
    """A case held in both processes, and trained the same in both."""
    assert case in traced.found, traced.out
    assert case in plain.found, plain.out
    assert "raised" not in traced.found[case], traced.found[case]["raised"]
    assert "raised" not in plain.found[case], plain.found[case]["raised"]
    assert traced.found[case] == plain.found[case]
