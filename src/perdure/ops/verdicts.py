"""What clients hear of a token verifier that can't tell: in place of 401, which says that the token is no good.

A client that hears 401 throws its token away and asks a person to log in again; if all that is wrong is that the
issuer's keys can't be had just now, nobody is helped. The SDK has a verifier say yes or no, and makes a 500 with a
traceback of anything that it raises. So what is raised as Starlette has it, an `HTTPException` with a status and
headers, is the response: 503 with `Retry-After`, as a rule.
"""

from __future__ import annotations

from typing import TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Heard", "heard"]

AppT = TypeVar("AppT", bound=Starlette)


class Heard:
    """Around the SDK's authentication, which stands around the place where Starlette itself looks after these."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except HTTPException as error:
            if begun or scope["type"] != "http":
                raise
            said = PlainTextResponse(f"{error.detail}\n", error.status_code, error.headers)
            await said(scope, receive, send)


def heard(app: AppT) -> AppT:
    """`app`, whose clients hear what its token verifier has to say. Once is enough, and twice does no harm."""
    app.add_middleware(Heard)
    return app
