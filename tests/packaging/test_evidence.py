"""The table of symptoms names tests, cases and scripts that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "evidence" / "symptoms.md"
ROWS = [
    line.split(" | ")
    for line in PAGE.read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| ---") and " | Test | " not in line
]


def functions_of(file: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)}


def test_the_table_has_every_kind_of_symptom_and_more_than_ten_further_reports() -> None:
    assert len(ROWS) > 70
    assert sum("https://github.com/" in row[0] for row in ROWS) >= 10


def test_every_test_named_in_the_table_exists() -> None:
    for _, tests, result in ROWS:
        named = re.findall(r"`([^`]+)`", tests)
        assert named, result
        for name in named:
            path, _, function = name.partition("::")
            assert (TESTS / path).is_file(), name
            assert not function or function in functions_of(TESTS / path), name


def test_a_report_is_cited_by_its_script() -> None:
    for report, tests, _ in ROWS:
        for address in re.findall(r"\((https://[^)]+)\)", report):
            script = TESTS / re.findall(r"`([^`]+)`", tests)[0]
            assert f"# from: {address}\n" in script.read_text(), address
