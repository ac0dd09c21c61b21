"""External work settled over HTTP: one POST, a handle as its bearer token, and three words to say.

    POST /perdure/external        204  said, or said before in the same words
    Authorization: Bearer HANDLE  400  the body is none of these
                                  401  no handle, or one that names nothing; always the same bytes (contract 6)
    {"result": …}                 409  it ended otherwise before, or its task is over
    {"error": "…"}                413  larger than `Limits.request_body`, or its result than `Limits.step_result`
    {"message": "…"}              503  the store is away; try again after Retry-After

The handle goes into a header because URLs end up in access logs. It is looked at before the body is: whoever has
nothing that looks like a handle is not listened to, and nobody for longer than `Limits.request_body`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from perdure.domain.errors import AlreadySettled, LimitExceeded, NotStorable, StoreUnavailable, TaskNotFound, Unreadable
from perdure.domain.handles import Handle
from perdure.domain.limits import Limits
from perdure.tools.external import ExternalWork

__all__ = ["Callbacks"]

_SHAPE: Final = 'The body has to be one of {"result": …}, {"error": "…"} and {"message": "…"}'


class _Bad(Exception):
    """The body is not what it has to be; the message says why."""


class _TooLarge(Exception):
    """There is more of the body than is read."""


class Callbacks:
    """The endpoint. `limits`: what bounds a body."""

    def __init__(self, work: ExternalWork, limits: Callable[[], Limits]) -> None:
        self._work = work
        self._limits = limits

    async def endpoint(self, request: Request) -> Response:
        """Answer one request."""
        most = self._limits().request_body
        try:
            handle = _handle(request)
            say = self._verb(_parsed(await _body(request, most)))
            await say(handle)
        except TaskNotFound:
            return _refusal(401, "Unknown handle", {"WWW-Authenticate": "Bearer"})
        except AlreadySettled as error:
            return _refusal(409, str(error))
        except (_Bad, NotStorable, ClientDisconnect) as error:
            return _refusal(400, str(error))
        except _TooLarge:
            return _refusal(413, f"The body has more than {most} bytes (request_body)")
        except LimitExceeded as error:
            return _refusal(413, str(error))
        except StoreUnavailable as error:
            return _refusal(503, str(error), {"Retry-After": str(math.ceil(error.retry_after_ms / 1000))})
        except Unreadable:  # others may have the key that is lacking here
            return _refusal(503, "The task can't be read", {"Retry-After": "60"})
        return Response(status_code=204)

    def _verb(self, body: dict[str, Any]) -> Callable[[Handle], Awaitable[None]]:
        """What the body wants said.

        Raises:
            _Bad: it wants nothing that there is.
        """
        match body:
            case {"result": result, **others} if not others:
                return lambda handle: self._work.complete(handle, result)
            case {"error": str() as message, **others} if not others:
                return lambda handle: self._work.fail(handle, message)
            case {"message": str() as message, **others} if not others:
                return lambda handle: self._work.report(handle, message)
            case _:
                raise _Bad(_SHAPE)


def _handle(request: Request) -> Handle:
    """The handle that the request bears.

    Raises:
        TaskNotFound: it bears none.
    """
    fields = request.headers.getlist("authorization")
    scheme, _, text = fields[0].partition(" ") if len(fields) == 1 else ("", "", "")
    if scheme.lower() != "bearer":
        raise TaskNotFound
    return Handle.parse(text.strip())


async def _body(request: Request, most: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > most:
        raise _TooLarge
    body = bytearray()
    async for chunk in request.stream():
        if len(body) + len(chunk) > most:
            raise _TooLarge
        body += chunk
    return bytes(body)


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        found: object = json.loads(body)
    except (ValueError, RecursionError):
        raise _Bad("The body is no JSON") from None
    if not isinstance(found, dict):
        raise _Bad(_SHAPE)
    return cast("dict[str, Any]", found)


def _refusal(status: int, error: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": error}, status, headers)
