from __future__ import annotations

import argparse
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import from_code
from report.summaries import make_summary
from traceml_ai.cli.main import VERBS, load, parser_of
from traceml_ai.diagnose import rules
from traceml_ai.report.card import MAX_LINES, render_card

ROOT = Path(__file__).parent.parent.parent
FINDINGS = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
COMMANDS = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
RULES = [module.name for module in pkgutil.iter_modules(rules.__path__) if not module.name.startswith("_")]


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_documented_from_its_own_source(rule: str) -> None:
    assert f"{{{{ rule: {rule} }}}}" in FINDINGS


@pytest.mark.parametrize("rule", RULES)
def test_every_kind_has_a_heading(rule: str) -> None:
    kind = importlib.import_module(f"{rules.__name__}.{rule}").KIND
    assert re.search(rf"^### .*\b{kind}\b", FINDINGS, re.MULTILINE)


def test_no_rule_is_documented_that_does_not_exist() -> None:
    assert set(re.findall(r"\{\{ rule: (\w+) \}\}", FINDINGS)) <= set(RULES)


def test_the_card_in_the_readme_is_laid_out_as_cards_are() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = next(block for block in readme.split("```") if block.startswith("\nTraceML · "))
    labels = re.compile(r"^(  Why|  Next|  Gain|Step|  = step time|[A-Z][a-z ]+:)", re.MULTILINE)
    now = labels.findall(render_card(make_summary(), width=80))
    assert [label for label in labels.findall(shown) if label in now] == labels.findall(shown)
    assert len(shown.strip().splitlines()) <= MAX_LINES


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_of_the_command_line_is_documented(verb: str) -> None:
    parser: argparse.ArgumentParser = parser_of(verb, load(verb))
    options = {name for name in parser._option_string_actions if name.startswith("--")} - {"--help"}
    documented = set(re.findall(r"--[a-z-]+", COMMANDS))
    assert {o for o in options if not o.startswith("--rdzv-")} <= documented


def test_a_threshold_is_listed_with_the_comment_above_it() -> None:
    source = "# A fifth is a lot.\n# Really.\nSHARE = 0.20\n"
    assert from_code.thresholds(source) == [("SHARE", "0.2", "A fifth is a lot. Really.")]


def test_a_comment_holds_for_the_constants_below_it_until_the_next() -> None:
    source = "# Both.\n_A, _B = 1.5, 2\n_C = 1 / 3\n# Else.\n_D = -1\n"
    assert [(name, why) for name, _, why in from_code.thresholds(source)] == [
        ("A", "Both."),
        ("B", "Both."),
        ("C", "Both."),
        ("D", "Else."),
    ]


def test_a_constant_that_is_no_number_is_no_threshold() -> None:
    assert from_code.thresholds('KIND = "NORMAL"\nFLAG = True\n') == []


def test_a_rule_without_a_documented_condition_is_an_error() -> None:
    with pytest.raises(ValueError, match="meets_conditions"):
        from_code.condition("KIND = 'X'\n")


def test_the_fields_of_a_struct_become_a_table() -> None:
    source = 'class A:\n    """An A."""\n\n    x: int | None = None  # how many\n'
    (table,) = from_code.struct_tables(source)
    assert table.startswith("### A\n\nAn A.\n\n| field | type | meaning |\n| --- | --- | --- |\n")
    assert table.endswith("\n| `x` | `int \\| None` | how many |")
