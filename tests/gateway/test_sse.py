"""The parser of event streams: what it reads, however it is cut up, and where it stops."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.gateway.sse import Parser, SSEBounds, SSEFault

BOUNDS = SSEBounds(event=200, quiet_bytes=100, quiet_rate=1.0, quiet_seconds=60.0)


def read(pieces: Iterable[bytes], bounds: SSEBounds = BOUNDS) -> list[str]:
    parser = Parser(bounds, 0.0)
    return [said for piece in pieces for said in parser.feed(piece, 0.0)]


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_a_line_ends_with_any_of_the_three(end: str) -> None:
    assert read([f"event: message{end}data: a{end}data:b{end}id: 7{end}{end}data:  c{end}{end}".encode()]) == [
        "a\nb",
        " c",
    ]


@given(
    texts=st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), min_size=1, max_size=20),
        max_size=4,
    ),
    ends=st.lists(st.sampled_from(["\n", "\r", "\r\n"]), min_size=1, max_size=5),
    cuts=st.lists(st.integers(0, 300), max_size=20),
)
def test_wherever_a_stream_is_cut_it_says_the_same(texts: list[str], ends: list[str], cuts: list[int]) -> None:
    """In the middle of a character, and between the two halves of a CRLF, too."""
    lines = [line for text in texts for line in (": a comment", f"data: {text}", "")]
    data = "".join(line + ends[at % len(ends)] for at, line in enumerate(lines)).encode()
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[start:stop] for start, stop in pairwise(edges)]
    # A stream that mixes its ends of lines may say CR, LF where it means two: then neither has said anything else.
    assert read(pieces, SSEBounds()) == read([data], SSEBounds())
    if len(set(ends)) == 1:
        assert read(pieces, SSEBounds()) == texts


def test_every_byte_by_itself_is_the_same_stream() -> None:
    data = "\N{BYTE ORDER MARK}data: gr\u00fc\u00df \U0001f600\r\n\r\n".encode()
    assert read(bytes([each]) for each in data) == ["gr\u00fc\u00df \U0001f600"]


def test_an_event_is_told_with_its_last_byte_and_waits_for_no_other() -> None:
    assert read([b"data: a\r\r"]) == ["a"]


def test_an_event_without_a_blank_line_after_it_is_none() -> None:
    assert read([b"data: a\n"]) == []


def test_what_is_no_message_is_not_told() -> None:
    assert read([b"event: ping\ndata: a\n\ndata:\n\nid: 3\n\nretry: 5\n\nevent: message\ndata: b\n\n"]) == ["b"]


@pytest.mark.parametrize("data", [b"data: " + b"a" * 300, b"data: a\n" * 40, b": " + b"a" * 300])
def test_one_event_has_a_bound_whether_it_ends_or_not(data: bytes) -> None:
    with pytest.raises(SSEFault, match="too large") as caught:
        read([data])
    assert not caught.value.late


def test_an_event_that_is_no_utf_8_ends_the_stream() -> None:
    with pytest.raises(SSEFault, match="UTF-8"):
        read([b"data: \xff\n\n"])


@pytest.mark.parametrize(
    "sign", [b": ping\n\n", b": ping\n", b"\n", b"data:\n\n", b"event: x\ndata: y\n\n", b"id: 1\n"]
)
def test_a_flood_of_signs_of_life_ends_the_stream(sign: bytes) -> None:
    with pytest.raises(SSEFault, match="signs of life") as caught:
        read([sign] * 200)
    assert not caught.value.late


def test_a_comment_now_and_then_is_well_for_as_long_as_it_may_take() -> None:
    parser = Parser(replace(BOUNDS, quiet_rate=5.0), 0.0)
    for second in range(0, 60, 5):
        assert list(parser.feed(b": ping - 2026-11-30\n\n", second)) == []
    with pytest.raises(SSEFault, match="too long") as caught:
        list(parser.feed(b": ping\n\n", 60.5))
    assert caught.value.late


def test_a_message_begins_the_time_anew() -> None:
    parser = Parser(BOUNDS, 0.0)
    assert list(parser.feed(b"data: a\n\n", 59.0)) == ["a"]
    assert parser.silent_after == 119.0
    assert list(parser.feed(b": " + b"x" * 90 + b"\n\n", 100.0)) == []
    assert list(parser.feed(b"data: b\n\n: " + b"x" * 90 + b"\n\n", 100.0)) == ["b"]
