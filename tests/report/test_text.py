from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from traceml_ai.report.text import apportion, clean, duration, fit, number, pad, size, wrap


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "n/a"),
        (0, "0"),
        (0.0004, "<0.001"),
        (0.0154, "0.015"),
        (0.571, "0.571"),
        (1.8, "1.80"),
        (18.04, "18.0"),
        (180.4, "180"),
        (18040.0, "18,040"),
    ],
)
def test_a_number_has_three_significant_digits(value: float | None, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "n/a"),
        (0.25, "0.250 s"),
        (59.4, "59.4 s"),
        (61, "1 min 1 s"),
        (3599.7, "1 h 0 min"),
        (7320, "2 h 2 min"),
    ],
)
def test_a_duration_is_in_the_unit_a_person_would_choose(seconds: float | None, shown: str) -> None:
    assert duration(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (None, "n/a"),
        (0, "0 B"),
        (999, "999 B"),
        (1536, "1.50 KiB"),
        (415 << 20, "415 MiB"),
        (1.5 * 2**30, "1.50 GiB"),
        (-(2 << 20), "-2.00 MiB"),
        (3 << 40, "3.00 TiB"),
    ],
)
def test_bytes_are_shown_in_binary_units(count: float | None, shown: str) -> None:
    assert size(count) == shown


@pytest.mark.parametrize("hostile", ["\x1b[31m", "\x9b", "\u202e", "\u2028", "\ud800", "\x7f", "\x00"])
def test_a_character_that_could_steer_a_terminal_is_replaced(hostile: str) -> None:
    assert clean(f"a{hostile}b").isprintable()


def test_line_breaks_and_tabs_become_single_spaces() -> None:
    assert clean("a\r\n\tb") == "a b"


def test_known_signs_have_an_ascii_form() -> None:
    assert clean("9 µs · 2 × 3 → 6", ascii_only=True) == "9 us | 2 x 3 -> 6"


@given(st.text(max_size=80), st.integers(0, 40))
def test_a_fitted_text_is_never_wider_than_its_room(text: str, width: int) -> None:
    assert cell_len(fit(clean(text), width)) <= width


@given(st.text(max_size=80), st.integers(4, 40))
def test_a_padded_text_is_exactly_as_wide_as_its_room(text: str, width: int) -> None:
    assert cell_len(pad(clean(text), width)) == width


@given(st.lists(st.text("abc", min_size=1, max_size=8), min_size=1, max_size=30), st.integers(10, 40))
def test_wrapping_keeps_every_word_when_there_are_enough_lines(words: list[str], width: int) -> None:
    assert " ".join(wrap(" ".join(words), width, max_lines=100)).split() == words


def test_what_does_not_fit_the_last_line_is_cut_with_a_mark() -> None:
    assert wrap("one two three four five", 9, max_lines=2) == ["one two", "three..."]


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=12))
def test_rounded_parts_add_up_to_the_rounded_whole(parts: list[float]) -> None:
    # 1.15 may be rounded either way: it is no binary fraction.
    assert sum(apportion(parts)) == pytest.approx(sum(parts), abs=0.0501)


def test_rounded_shares_add_up_to_100() -> None:
    assert round(sum(apportion([100 / 3, 100 / 3, 100 / 3])), 6) == 100.0
