"""How large the body of a request may be."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers
from starlette.types import Message

from perdure.gateway.bodies import TooLarge, read

_MOST = 10


async def _read(*pieces: bytes, announced: str | None = None, whole: bool = True) -> bytes | None:
    """Of a client that sends these, and hangs up then if it is not `whole`."""
    messages: list[Message] = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    last: Message = {"type": "http.request", "more_body": False} if whole else {"type": "http.disconnect"}
    coming = iter([*messages, last])

    async def receive() -> Message:
        return next(coming)

    headers = {} if announced is None else {"content-length": announced}
    return await read(Headers(headers), receive, _MOST)


async def test_a_body_is_all_that_came() -> None:
    assert await _read(b"12345", b"67890") == b"1234567890"
    assert await _read(b"1234567890", announced="10") == b"1234567890"


@pytest.mark.parametrize("announced", ["11", "9" * 5_000])
async def test_a_body_that_is_announced_as_too_large_is_not_read(announced: str) -> None:
    with pytest.raises(TooLarge):
        await _read(announced=announced, whole=False)


@pytest.mark.parametrize("announced", [None, "3", "many", "-1"])
async def test_a_body_is_bounded_whatever_was_announced(announced: str | None) -> None:
    with pytest.raises(TooLarge):
        await _read(b"12345", b"678901", announced=announced)


async def test_a_client_that_hangs_up_before_the_end_has_sent_nothing() -> None:
    assert await _read(b"12345", whole=False) is None
