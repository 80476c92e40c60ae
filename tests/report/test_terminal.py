from __future__ import annotations

import io

import pytest

from report.summaries import make_summary
from traceml_ai.report.card import render_card
from traceml_ai.report.terminal import card_for, stream_can_encode
from traceml_ai.schema.summary import RunSection


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def stream(encoding: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding=encoding)


@pytest.mark.parametrize(
    ("encoding", "expected"), [("utf-8", True), ("ascii", False), ("latin-1", False), ("cp437", False)]
)
def test_a_stream_is_asked_whether_it_can_encode_the_glyphs(encoding: str, expected: bool) -> None:
    assert stream_can_encode(stream(encoding)) is expected


def test_a_stream_without_an_encoding_gets_ascii() -> None:
    assert card_for(make_summary(), io.StringIO(), environ={}).isascii()


def test_a_file_gets_no_colours_and_100_columns() -> None:
    assert card_for(make_summary(), stream("utf-8"), environ={}) == render_card(make_summary())


def test_a_terminal_gets_colours() -> None:
    assert "\x1b[" in card_for(make_summary(), Terminal(), environ={"TERM": "xterm"})


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_that_wants_no_colours_gets_none(environ: dict[str, str]) -> None:
    assert "\x1b[" not in card_for(make_summary(), Terminal(), environ=environ)


def test_a_name_that_the_stream_cannot_encode_does_not_stop_the_card() -> None:
    odd = make_summary(run=RunSection(name="学習", status="completed"))
    target = stream("cp1252")
    target.write(card_for(odd, target, environ={}))
    target.flush()
