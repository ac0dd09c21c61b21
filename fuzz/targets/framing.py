"""HTTP itself: requests that are cut off, doubled, chunked in odd ways, or disturbed in any byte."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from fuzz.http import post
from fuzz.people import ADA, handle, task_id
from fuzz.scene import Scene
from tests.wire.envelopes import envelope, headers

from .base import Needs, Target

__all__ = ["TARGET", "Bytes"]


@dataclass(frozen=True, slots=True)
class Bytes:
    """What is sent. `whole`: it is a request in order as far as HTTP goes, so it has to be answered."""

    content: bytes
    whole: bool = False


def _body(method: str, kind: str) -> bytes:
    return json.dumps(envelope(method, {"taskId": task_id(ADA, kind), "inputResponses": {}})).encode()


def _good(method: str, kind: str, *more: tuple[str, str]) -> bytes:
    body = _body(method, kind)
    fields = [*headers(json.loads(body)).items(), ("authorization", f"Bearer {ADA.token}"), *more]
    return post("/mcp", body, fields)


_REQUESTS: Final = (
    _good("tasks/get", "done"),
    _good("tasks/get", "asking"),
    _good("tasks/cancel", "waiting"),
    _good("tasks/update", "asking"),
    post("/perdure/external", b'{"message": "half of it"}', {"authorization": f"Bearer {handle(ADA, 'external')}"}),
    b"GET /health HTTP/1.1\r\nhost: 127.0.0.1:8000\r\nconnection: close\r\n\r\n",
)
_PIECES: Final = (
    b"", b"\0", b"\r\n", b"\n", b"\r", b"\r\n\r\n", b" ", b"\t", b":", b"\xff", b"0\r\n\r\n", b"HTTP/1.1", b"HTTP/1.0",
    b"HTTP/9.9", b"content-length: 0\r\n", b"content-length: -1\r\n", b"content-length: 99999999999999999999\r\n",
    b"content-length: 5, 5\r\n", b"transfer-encoding: chunked\r\n", b"transfer-encoding: gzip, chunked\r\n",
    b"transfer-encoding: identity\r\n", b"expect: 100-continue\r\n", b"upgrade: h2c\r\n", b"connection: keep-alive\r\n",
    b"host: evil.example\r\n", b" folded\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"x: " + b"y" * 70_000 + b"\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"x: y\r\n" * 200, b"GET", b"DELETE", b"OPTIONS", b"HEAD",
    b"CONNECT", b"/mcp/", b"//mcp", b"/mcp?x=1", b"/../mcp", b"/mcp%2f", b"*", b"http://evil.example/mcp", b"/health",
    b"%zz", b"/.well-known/oauth-protected-resource/mcp", b"x" * 9000,
)  # fmt: skip

Cut = tuple[int, int, bytes]
"""From where, how many bytes, and what comes in their place. The places are in permille, as requests differ."""


def _disturbed(request: bytes, cuts: list[Cut], end: int | None) -> Bytes:
    for at, length, piece in cuts:
        start = at * len(request) // 1000
        request = request[:start] + piece + request[start + length :]
    return Bytes(request if end is None else request[: end * len(request) // 1000])


def _disturbances() -> SearchStrategy[Bytes]:
    piece = st.sampled_from(_PIECES) | st.binary(max_size=6)
    cuts = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 40), piece), max_size=3)
    return st.builds(_disturbed, st.sampled_from(_REQUESTS), cuts, st.none() | st.integers(0, 1000))


# -- lines of the head, each replaced or preceded ----------------------------------------------------------------------


def _lined(request: bytes, lines: list[tuple[int, bytes, bool]]) -> Bytes:
    head, _, body = request.partition(b"\r\n\r\n")
    found = head.split(b"\r\n")
    for at, piece, instead in lines:
        place = at % len(found)
        found[place : place + instead] = [piece.removesuffix(b"\r\n")]
    return Bytes(b"\r\n".join(found) + b"\r\n\r\n" + body)


def _lines() -> SearchStrategy[Bytes]:
    piece = st.sampled_from(_PIECES)
    return st.builds(
        _lined,
        st.sampled_from(_REQUESTS),
        st.lists(st.tuples(st.integers(0, 9), piece, st.booleans()), min_size=1, max_size=3),
    )


# -- chunks ------------------------------------------------------------------------------------------------------------

_SIZES: Final = (
    "{:x}",
    "{:X}",
    "0{:x}",
    "{:x};ext=1",
    '{:x};a="b;c"',
    "{:x} ",
    " {:x}",
    "-{:x}",
    "0x{:x}",
    "{:x}\0",
    "f{:x}",
)
_ENDS: Final = (
    "0\r\n\r\n",
    "0;x\r\n\r\n",
    "00000\r\n\r\n",
    "0\r\ntrailer: x\r\n\r\n",
    "0\r\ncontent-length: 3\r\n\r\n",
    "0\r\n",
    "",
    "z\r\n",
)


def _chunked(request: bytes, sizes: list[int], size: str, end: str) -> Bytes:
    head, _, body = request.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"content-length")]
    sent = b"\r\n".join([*lines, b"transfer-encoding: chunked", b"", b""])
    while body:
        length = max(1, sizes.pop() if sizes else len(body))
        sent += size.format(len(body[:length])).encode() + b"\r\n" + body[:length] + b"\r\n"
        body = body[length:]
    good = size in _SIZES[:4] and end in _ENDS[:1]
    return Bytes(sent + end.encode(), whole=good)


def _chunks() -> SearchStrategy[Bytes]:
    sizes = st.lists(st.integers(1, 500), max_size=20)
    return st.builds(_chunked, st.sampled_from(_REQUESTS[:5]), sizes, st.sampled_from(_SIZES), st.sampled_from(_ENDS))


# -- several at once ---------------------------------------------------------------------------------------------------


def _in_a_row(requests: list[bytes], last: bytes) -> Bytes:
    kept = [request.replace(b"connection: close\r\n", b"") for request in requests]
    return Bytes(b"".join([*kept, last]), whole=True)


def _rows() -> SearchStrategy[Bytes]:
    one = st.sampled_from(_REQUESTS)
    return st.builds(_in_a_row, st.lists(one, max_size=4), one)


def check(scene: Scene, case: Bytes) -> None:
    """Send it: an answer comes, or the end of the connection."""
    scene.send(case.content, whole=case.whole)


TARGET: Final = Target(
    "framing",
    Needs.QUIET,
    st.one_of(_disturbances(), _disturbances(), _lines(), _chunks(), _rows(), st.binary(max_size=40).map(Bytes)),
    check,
    count=100,  # many of them are silence, which takes its time
)
