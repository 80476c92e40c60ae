"""The tables in the pages on MONAI, Ignite and ThroughputMonitor name tests that exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
DOCS = TESTS.parent / "docs"
KNOWN = {
    name
    for folder in ("monai", "ignite", "monitoring", "pure")
    for file in (TESTS / folder).rglob("*.py")
    for name in [file.stem, file.name, *re.findall(r"^def (\w+)\(", file.read_text(), re.MULTILINE)]
}


@pytest.mark.parametrize(("page", "least"), [("monai", 40), ("ignite", 8), ("monitoring", 20)])
def test_every_behaviour_in_a_table_names_a_test_that_exists(page: str, least: int) -> None:
    text = (DOCS / f"{page}.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    rows = [row for row in rows if not re.search(r"\| Test( in `[\w/]+`)? \|$", row)]
    assert len(rows) >= least
    for row in rows:
        names = re.findall(r"`([^`]+)`", row.rsplit("|", 2)[1])
        assert names, row
        assert set(names) <= KNOWN, row


def test_the_adapters_import_neither_torch_nor_their_frameworks() -> None:
    code = (
        "import sys, traceml_ai.integrations.monai, traceml_ai.integrations.ignite; "
        "assert not {'torch', 'monai', 'ignite'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
