from __future__ import annotations

from traceml_ai.collect.notes import Guard, Notes


def fail() -> int:
    raise ValueError("first line\nsecond line")


def test_a_topic_is_remarked_once() -> None:
    said: list[str] = []
    notes = Notes(said.append)
    notes.add("a", "one", aloud=True)
    notes.add("a", "two", aloud=True)
    notes.add("b", "three")

    assert notes.messages() == ["one", "three"]
    assert said == ["one"]


def test_an_error_costs_its_part_and_nothing_else() -> None:
    said: list[str] = []
    guard = Guard(Notes(said.append))

    assert guard("one", fail) is None
    assert guard("two", lambda: 2) == 2
    assert len(said) == 1
    assert "one stopped on an error of TraceML's own (ValueError: first line, " in said[0]
    assert "second line" not in said[0]


def test_a_part_that_failed_is_not_tried_again() -> None:
    guard = Guard(Notes())
    guard("one", fail)

    assert guard("one", lambda: 1) is None
