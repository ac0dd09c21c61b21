"""A backend that is reached by a proxy: httpx2's transport, which knows how proxies are spoken to.

No client of httpx2 stands above it. All that one adds would be wrong for who speaks for many: a jar that gives one
user's cookies to the next, redirects, credentials and proxies that it finds in the environment.

A connection is for one request. What comes in one piece with a response httpx2 has for the answer to the next request,
and that may be another user's.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import anyio
import httpx2

from .connections import Response
from .hops import OURS

__all__ = ["Proxied"]

_CLOSING: Final = 1.0
"""Seconds that closing a response takes at most."""


class Proxied:
    """Connections to `url` by `proxy`, `most` at once. Times in seconds, as of `Connections`."""

    def __init__(self, url: httpx2.URL, proxy: str, verify: Any, *, connect: float, write: float, most: int) -> None:
        limits = httpx2.Limits(max_connections=most, max_keepalive_connections=0)
        self._url = url
        self._pool = httpx2.AsyncHTTPTransport(limits=limits, proxy=proxy, verify=verify)
        # Until there is a head, httpx2 has no bound for reading: a call may run for as long as the deadline lets it.
        self._timeout = {"connect": connect, "read": None, "write": write, "pool": connect}

    async def send(self, headers: Sequence[tuple[bytes, bytes]], body: bytes, until: float) -> Response:
        """POST it; the response, once its head is there. `until`: a moment of the event loop's clock.

        Raises:
            httpx2.TransportError: there is none, or none by then.
        """
        extensions = {"timeout": self._timeout}
        request = httpx2.Request("POST", self._url, headers=[*OURS, *headers], content=body, extensions=extensions)
        with _by(until):
            return _Answer(await self._pool.handle_async_request(request))

    async def aclose(self) -> None:
        """Close all of them."""
        await self._pool.aclose()


class _Answer:
    def __init__(self, response: httpx2.Response) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._raw = response.aiter_raw()

    async def read(self, until: float) -> bytes | None:
        with _by(until):
            return await anext(self._raw, None)

    async def aclose(self) -> None:
        # From the outside in: a generator that is left where it stands is closed whenever the collector comes by. The
        # response by itself, since one that was never read has no generator that would do it.
        with anyio.move_on_after(_CLOSING, shield=True):
            await self._raw.aclose()
            await self._response.aclose()


@contextmanager
def _by(until: float) -> Generator[None]:
    with anyio.CancelScope(deadline=until) as scope:
        yield
    if scope.cancelled_caught:
        raise httpx2.ReadTimeout("nothing came in time")
