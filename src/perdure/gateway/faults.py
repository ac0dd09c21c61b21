"""What goes wrong between the gateway and a backend, and the JSON-RPC error that a client hears of it.

A backend's own errors are no faults: they pass unchanged. Those of the gateway carry `data.gateway`, so that nobody
takes one for the other, and name the backend, but never its address or what the network said of it.

All but the refusals are -32000, or -32001 for what took too long, which clients take for something that passes. What
may have been carried out although nobody heard of it is marked as the client library marks it,
`dev.perdure/unreachable`: without that mark, an error that says when to come back reads as *not done, do it again*, and
a tool would run twice.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Self

from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST, REQUEST_TIMEOUT

from perdure.client.faults import UNREACHABLE
from perdure.domain.errors import PerdureError
from perdure.domain.model import JSONObject

__all__ = [
    "BackendBroken",
    "BackendRefused",
    "BackendTimeout",
    "BackendUnavailable",
    "Fault",
    "IdentityRefused",
    "IdentityUnavailable",
    "Leaving",
    "Overloaded",
    "Unrouted",
]

_SOON_MS: Final = 1_000


class Fault(PerdureError):
    """A request that got no answer from its backend.

    `backend`: its name. `retry_after_ms`: when it may be worth another try; None: nobody knows that it ever is.
    `begun`: the backend may have carried the request out. `counts`: it says that the backend is not well, so the
    breaker is told.
    """

    code: ClassVar[int] = CONNECTION_CLOSED
    status: ClassVar[int] = 502
    """Of HTTP, where the response has not begun."""

    def __init__(
        self,
        backend: str,
        message: str,
        *,
        retry_after_ms: int | None = None,
        begun: bool = False,
        counts: bool = False,
    ) -> None:
        super().__init__(message)
        self.backend = backend
        self.retry_after_ms = retry_after_ms
        self.begun = begun
        self.counts = counts

        self.wish_ms = 0
        """What the backend itself asks to be left alone for."""

    @property
    def retryable(self) -> bool:
        """Whether the same request may fare better in a moment, if it may be sent twice at all."""
        return False

    def again(self) -> Self:
        """The same, to be raised by somebody else too: an exception keeps the tracebacks of all who raised it."""
        again = type(self).__new__(type(self), *self.args)
        again.__dict__.update(self.__dict__)
        return again

    def error(self) -> JSONObject:
        """The `error` of a JSON-RPC response."""
        data: dict[str, Any] = {"gateway": True, "backend": self.backend}
        if self.retry_after_ms is not None:
            data["retryAfterMs"] = self.retry_after_ms
        if self.begun:
            data[UNREACHABLE] = True
        return {"code": self.code, "message": str(self), "data": data}


class BackendUnavailable(Fault):
    """It can't be reached, hung up, says that it has no room, or is being left alone after it failed too often."""

    status = 503

    def __init__(
        self,
        backend: str,
        why: str = "can't be reached",
        *,
        retry_after_ms: int | None = None,
        begun: bool = False,
        counts: bool = True,
        resting: bool = False,
    ) -> None:
        wait = _SOON_MS if retry_after_ms is None else retry_after_ms
        super().__init__(backend, f"The backend {backend} {why}", retry_after_ms=wait, begun=begun, counts=counts)
        self.wish_ms = retry_after_ms or 0
        self.resting = resting
        """The breaker is open: it will be for a while, so there is no use in waiting for it here."""

    @property
    def retryable(self) -> bool:
        return not self.resting


class BackendTimeout(Fault):
    """It took longer than it may."""

    code = REQUEST_TIMEOUT
    status = 504

    def __init__(self, backend: str, *, begun: bool, counts: bool, retry_after_ms: int = _SOON_MS) -> None:
        super().__init__(
            backend,
            f"The backend {backend} did not answer in time",
            retry_after_ms=retry_after_ms,
            begun=begun,
            counts=counts,
        )

    @property
    def retryable(self) -> bool:
        return True


class BackendBroken(Fault):
    """What it answers is not what the protocol has: malformed, oversized, a redirect, somebody else's id."""

    def __init__(self, backend: str, why: str, *, counts: bool = True) -> None:
        super().__init__(backend, f"The backend {backend} broke the protocol: {why}", begun=True, counts=counts)


class BackendRefused(Fault):
    """It refuses the request by a status of HTTP, and not in the protocol's words: 401 and 403 above all.

    That says nothing of its health, and mostly that the gateway is not set up as the backend wants it.
    """

    code = INVALID_REQUEST

    def __init__(self, backend: str, status: int) -> None:
        super().__init__(backend, f"The backend {backend} refused the request with HTTP status {status}")
        self.upstream_status = status


class Overloaded(Fault):
    """The gateway has as many requests under way to this backend as it may, and no room or no time to wait for one."""

    status = 503

    def __init__(self, backend: str, *, retry_after_ms: int = _SOON_MS) -> None:
        super().__init__(backend, f"The backend {backend} has no room just now", retry_after_ms=retry_after_ms)


class Unrouted(Fault):
    """It began a task that nobody can be told of: the table of routes can't be written just now."""

    status = 503

    def __init__(self, backend: str, why: str, retry_after_ms: int) -> None:
        super().__init__(backend, why, retry_after_ms=retry_after_ms, begun=True)


class Leaving(Fault):
    """The gateway ends, and the request had no answer yet when it had to. `backend`: "" if none had been found."""

    status = 503

    def __init__(self, backend: str) -> None:
        super().__init__(backend, "The gateway is being shut down", retry_after_ms=_SOON_MS, begun=bool(backend))


class IdentityRefused(Fault):
    """Who asks can't be passed on to this backend: no token, one that is for somebody else, or one that bought none."""

    code = INVALID_REQUEST
    status = 403

    def __init__(self, backend: str, why: str) -> None:
        super().__init__(backend, f"Nobody may be named to the backend {backend}: {why}")


class IdentityUnavailable(Fault):
    """Whoever exchanges tokens can't be reached, or answers with nonsense: the backend was not asked."""

    status = 503

    def __init__(self, backend: str, *, retry_after_ms: int = _SOON_MS) -> None:
        super().__init__(
            backend, f"The token for the backend {backend} can't be had just now", retry_after_ms=retry_after_ms
        )
