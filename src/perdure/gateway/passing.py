"""What a backend is told of who asks. One way of passing it on per backend, as the configuration says.

A client's `Authorization` header never goes on by itself: a token is for who it was given to, and a backend that gets
one of another server's could use it there. So what a backend gets is made for it (`signing`, `token_exchange`), or is a
token whose audience names it, or is nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol, cast

from mcp.server.auth.provider import AccessToken

from perdure.domain.model import Owner

from .faults import IdentityRefused

__all__ = ["Anonymous", "ForwardToken", "Passing", "audiences"]


class Passing(Protocol):
    """Says who asks, to one backend."""

    async def headers(self, owner: Owner, token: AccessToken | None, until: float = math.inf) -> Mapping[str, str]:
        """What goes with a request of `owner`, who came with `token`, if with any. It may be good for a minute only.

        `until`: a moment of the event loop's clock, for whoever has to ask somebody else.

        Raises:
            IdentityRefused: the backend can't be told, and so is not asked.
            IdentityUnavailable: not just now.
            BackendTimeout: not by then.
        """
        ...

    async def aclose(self) -> None:
        """Let go of what it holds."""
        ...


class Anonymous:
    """The backend is told nothing: to it, all clients of the gateway are one."""

    async def headers(self, owner: Owner, token: AccessToken | None, until: float = math.inf) -> Mapping[str, str]:
        return {}

    async def aclose(self) -> None:
        pass


class ForwardToken:
    """The client's own token, if it is for this backend too: one of its audiences is `audience`, byte by byte.

    Any other is refused, and so is a request without one.
    """

    def __init__(self, backend: str, audience: str) -> None:
        self._backend = backend
        self._audience = audience

    async def headers(self, owner: Owner, token: AccessToken | None, until: float = math.inf) -> Mapping[str, str]:
        if token is None:
            raise IdentityRefused(self._backend, "the request came without a token")
        if self._audience not in audiences(token):
            raise IdentityRefused(self._backend, "the access token is not for it")
        return {"authorization": f"Bearer {token.token}"}

    async def aclose(self) -> None:
        pass


def audiences(token: AccessToken) -> frozenset[str]:
    """Who a token is for: by its claim, and only without one by what the verifier says (RFC 8707)."""
    said: object = (token.claims or {}).get("aud")
    if said is None:
        return frozenset() if token.resource is None else frozenset({token.resource})
    several = cast("list[object]", said) if isinstance(said, list) else [said]
    return frozenset(each for each in several if isinstance(each, str))
