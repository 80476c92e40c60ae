"""What a program printed, as the lines that a terminal shows."""

from __future__ import annotations

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceml_ai.live.screen import Screen, to_ansi
from traceml_ai.live.styles import PLAIN, Style, sgr, styled

SIZE = 20, 6


def shown(data: bytes, *, width: int = 40, height: int = 6) -> list[str]:
    screen = Screen(width, height)
    screen.feed(data)
    return [line.text.rstrip() for line in screen.lines]


def test_a_progress_bar_is_one_line_however_often_it_is_drawn() -> None:
    bar = b"".join(b"\r%3d%%|%s|" % (i, b"#" * (i // 10)) for i in range(101))

    assert shown(b"start\r\n" + bar + b"\r\ndone\r\n") == ["start", "100%|##########|", "done", ""]


def test_two_bars_that_move_up_and_down_stay_two_lines() -> None:
    bars = b"".join(b"\router %d\n\rinner %d\x1b[A" % (i, i) for i in range(9))

    assert shown(bars + b"\n\n") == ["outer 8", "inner 8", ""]


def test_rich_progress_that_erases_its_lines_leaves_the_last() -> None:
    assert shown(b"\x1b[?25ltask 1\r\x1b[2K\x1b[1A\x1b[2Ktask 2\r\n\x1b[?25h") == ["task 2", ""]


def test_colours_go_with_their_characters() -> None:
    screen = Screen()
    screen.feed(b"a\x1b[1;31mb\x1b[38;5;208mc\x1b[38;2;1;2;3;4md\x1b[0me")

    assert list(screen.lines[0].runs()) == [
        ("a", PLAIN),
        ("b", Style(color=1, bold=True)),
        ("c", Style(color=208, bold=True)),
        ("d", Style(color="#010203", bold=True, underline=True)),
        ("e", PLAIN),
    ]


@pytest.mark.parametrize("cut", range(1, 40))
def test_it_does_not_matter_how_the_output_was_cut(cut: int) -> None:
    data = "é\x1b[31mrot\x1b[0m\x1b]8;;http://x\x1b\\日本\x1b]8;;\x1b\\\r\nzwei\x1b[2Dn".encode()
    whole, cut_up = Screen(), Screen()
    whole.feed(data)
    cut_up.feed(data[:cut])
    cut_up.feed(data[cut:])

    assert [list(line.runs()) for line in cut_up.lines] == [list(line.runs()) for line in whole.lines]
    assert shown(data) == ["érot日本", "zwni"]


def test_a_long_line_wraps_and_is_one_line_again_in_the_scroll_back() -> None:
    screen = Screen(10, 4)
    screen.feed(b"x" * 25 + b"\r\nend\r\n")

    assert [line.text for line in screen.lines] == ["x" * 10, "x" * 10, "x" * 5, "end", ""]
    assert to_ansi(list(screen.lines), color=False) == "x" * 25 + "\nend\n\n"


def test_a_wide_character_is_never_cut_in_two() -> None:
    assert shown("abc日本語".encode(), width=4) == ["abc", "日本", "語"]


def test_only_so_many_lines_are_kept() -> None:
    screen = Screen(20, 5, max_lines=100)
    screen.feed(b"".join(b"line %d\r\n" % i for i in range(1000)))

    assert len(screen.lines) == 100
    assert screen.dropped == 901
    assert screen.lines[-2].text == "line 999"


def test_a_full_screen_program_leaves_what_was_there_in_the_scroll_back() -> None:
    assert shown(b"before\r\n\x1b[?1049h\x1b[H\x1b[2Jmenu\x1b[?1049lafter", height=3)[:1] == ["before"]


def test_a_question_for_the_cursor_is_answered() -> None:
    answers: list[bytes] = []
    Screen(answer=answers.append).feed(b"ab\r\ncd\x1b[6n\x1b[5n")

    assert answers == [b"\x1b[2;3R", b"\x1b[0n"]


def test_unfinished_and_senseless_sequences_are_no_harm() -> None:
    screen = Screen(20, 5)
    for data in (
        b"\x1b[",
        b"\x1b[999999999999A",
        b"\x1b]0;title",
        b"\x07x",
        b"\x1b[38m",
        b"\x1b[;;;;m",
        b"\xff\x1bZ",
    ):
        screen.feed(data)

    assert "x" in screen.lines[-1].text


# Up and down only from the first column: behind the last one pyte still wraps after them, xterm does not.
PIECES = st.one_of(
    st.text("abc xyz", min_size=1, max_size=30).map(str.encode),
    st.sampled_from(
        [b"\r\n", b"\n", b"\r", b"\b", b"\r\x1b[A", b"\r\x1b[B", b"\x1b[2C", b"\x1b[3D", b"\x1b[K"]
    ),
    st.sampled_from([b"\x1b[1K", b"\x1b[2K", b"\x1b[P", b"\x1b[2@", b"\x1b[3X", b"\x1b[5G", b"\x1b[2;3H"]),
    st.sampled_from([b"\x1b[31m", b"\x1b[0m", b"\x1b[1;4m", b"\x1b[44m", b"\x1b[J"]),
)


@given(st.lists(PIECES, max_size=40))
def test_it_shows_what_a_terminal_emulator_shows(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    screen, oracle = Screen(*SIZE), pyte.HistoryScreen(*SIZE, history=1000)
    screen.feed(data)
    pyte.ByteStream(oracle).feed(data)
    scrolled = ["".join(row[column].data for column in range(SIZE[0])) for row in oracle.history.top]
    expected = [row.rstrip() for row in [*scrolled, *oracle.display]]
    ours = [line.text.rstrip() for line in screen.lines]

    assert ours == expected[: len(ours)]
    assert not "".join(expected[len(ours) :])


COLORS = st.none() | st.integers(0, 255) | st.just("#a0b0c0")


@given(st.builds(Style, color=COLORS, background=COLORS, bold=st.booleans(), dim=st.booleans()))
def test_a_style_is_read_back_as_it_was_written(style: Style) -> None:
    assert styled(PLAIN, sgr(style)[2:-1]) == style
