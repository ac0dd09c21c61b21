"""Which headers go on to a backend: all that are given, but what is between neighbours and what is ours to say.

Whoever passes a request on chooses what of a client's headers is given at all. This is the last look, so that no
mistake there can split a request in two, or have a backend take the client's word for its size, its host or its
session. What a `Connection` header names is not looked at: a client that names the header which says who asks would
have it left out, and a backend might take that for nobody in particular.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["OURS", "onward"]

_HOPS: Final = frozenset(
    {
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
        "transfer-encoding", "upgrade", "expect", "host", "content-length", "content-encoding", "content-type",
        "accept", "accept-encoding", "cookie", "mcp-session-id", "last-event-id", "user-agent",
    }
)  # fmt: skip
"""Headers that are between a client and the gateway, or that are ours to say."""
OURS: Final = [
    (b"content-type", b"application/json"),
    (b"accept", b"application/json, text/event-stream"),
    (b"accept-encoding", b"identity"),
    (b"user-agent", b"perdure-gateway"),
]
"""What each request has beside those that go on, its host and its length."""


def onward(given: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Those of `given` that go along."""
    # Names and values as ASGI has them: what is no ASCII in them is Latin-1.
    return [
        (name.encode("latin-1"), value.encode("latin-1")) for name, value in given.items() if name.lower() not in _HOPS
    ]
