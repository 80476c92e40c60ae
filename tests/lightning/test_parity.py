"""The table in `docs/lightning.md` names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs" / "lightning.md"


def test_every_behaviour_in_the_table_names_a_test_that_exists() -> None:
    rows = [line for line in DOCS.read_text().splitlines() if line.startswith("| ") and "---" not in line]
    sources = [*HERE.glob("test_*.py"), HERE / "scripts" / "cases.py"]
    known = {name for file in sources for name in re.findall(r"^def (\w+)\(", file.read_text(), re.MULTILINE)}
    known |= {file.stem for file in (HERE / "labelled").glob("[!_]*.py")}
    known |= {file.name for file in sources}
    named = [re.findall(r"`([^`]+)`", row.split("|")[2]) for row in rows]
    assert len(rows) > 35
    for row, names in zip(rows, named, strict=True):
        if row.endswith("| Test |"):
            continue
        assert names, row
        for name in names:
            assert name.partition("[")[0] in known, row
