"""Put what the code says of itself into the pages, so that the pages can't disagree with it.

A line of a page becomes

* ``{{ rule: input_bound }}``: the condition and the thresholds of that rule;
* ``{{ thresholds: diagnose/cost }}``: the numeric constants of any module, with their comments;
* ``{{ fields: schema/summary }}``: the structs of a module, a table of fields each.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).parent.parent / "src" / "traceml_ai"
_MARK = re.compile(r"^\{\{ (rule|thresholds|fields): ([\w/]+) \}\}$", re.MULTILINE)
_SCHEMA = "final_summary.schema.json"


def on_page_markdown(markdown: str, **_page: Any) -> str:
    """Replace the marks of a page (called by mkdocs)."""
    return _MARK.sub(_expand, markdown)


def on_files(files: Any, *, config: Any) -> Any:
    """Publish the JSON Schema beside the pages (called by mkdocs)."""
    from mkdocs.structure.files import File

    from traceml_ai.schema.summary import json_schema

    files.append(File.generated(config, _SCHEMA, content=json.dumps(json_schema(), indent=2)))
    return files


def _expand(mark: re.Match[str]) -> str:
    kind, name = mark.groups()
    path = f"diagnose/rules/{name}" if kind == "rule" else name
    source = (_PACKAGE / f"{path}.py").read_text(encoding="utf-8")
    if kind == "fields":
        return "\n\n".join(struct_tables(source))
    table = thresholds_table(source)
    return table if kind == "thresholds" else f"**Rule**: {condition(source)}\n\n{table}"


def condition(source: str) -> str:
    """Return what a rule's ``meets_conditions`` says of itself."""
    functions = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
    found = next((f for f in functions if f.name == "meets_conditions"), None)
    text = ast.get_docstring(found) if found else None
    if not text:
        raise ValueError("a rule needs a meets_conditions with a docstring")
    return " ".join(text.split())


def thresholds_table(source: str) -> str:
    """Return a table of a module's numeric constants with the comments above them."""
    rows = [f"| `{name}` | {value} | {reason} |" for name, value, reason in thresholds(source)]
    return "\n".join(["| threshold | value | why |", "| --- | --- | --- |", *rows]) if rows else ""


def thresholds(source: str) -> list[tuple[str, str, str]]:
    """Return name, value and reason of a module's numeric constants."""
    lines = source.splitlines()
    found = []
    reason = ""
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Assign):
            continue
        reason = _comment_at(lines, node.lineno - 1) or reason
        found += [(name.lstrip("_"), value, reason) for name, value in _numbers(node) if name.isupper()]
    return found


def _numbers(node: ast.Assign) -> list[tuple[str, str]]:
    target, value = node.targets[0], node.value
    pairs = [(target, value)]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = list(zip(target.elts, value.elts, strict=True))
    return [(n.id, ast.unparse(v)) for n, v in pairs if isinstance(n, ast.Name) and _is_number(v)]


def _is_number(value: ast.expr) -> bool:
    """Whether an expression is made of numbers only, as ``1 / 3`` is."""
    if isinstance(value, ast.BinOp):
        return _is_number(value.left) and _is_number(value.right)
    if isinstance(value, ast.UnaryOp):
        return _is_number(value.operand)
    return isinstance(value, ast.Constant) and type(value.value) in {int, float}


def _comment_at(lines: list[str], at: int) -> str:
    """Return the comment behind a line, else the one in the lines right above it."""
    _, mark, behind = lines[at].partition("  # ")
    if mark and not behind.startswith("noqa"):
        return _cell(behind)
    first = at
    while first and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    return _cell(" ".join(line.lstrip("# ") for line in lines[first:at]))


def _cell(text: str) -> str:
    return text.strip().replace("|", "\\|")


def struct_tables(source: str) -> Iterator[str]:
    """Yield a heading, the docstring and a table of fields for each class of a module."""
    lines = source.splitlines()
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef):
            continue
        rows = [
            f"| `{field.target.id}` | `{_cell(ast.unparse(field.annotation))}` | "
            f"{_comment_at(lines, field.lineno - 1)} |"
            for field in node.body
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        ]
        head = ["| field | type | meaning |", "| --- | --- | --- |"]
        yield "\n".join([f"### {node.name}", "", ast.get_docstring(node) or "", "", *head, *rows])
