"""A token verifier may say that it can't tell, and clients hear that in place of 401. Any other trouble stays one."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager

import httpx2
import pytest
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perdure import Tasks
from perdure.ops.verdicts import heard
from perdure.store.memory import MemoryStore

AWAY = HTTPException(503, "ask later", {"Retry-After": "7"})


class Unsure:
    async def verify_token(self, token: str) -> AccessToken | None:
        raise AWAY


@asynccontextmanager
async def asking(app: ASGIApp) -> AsyncGenerator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(app, raise_app_exceptions=True)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
        yield client


async def test_what_a_verifier_raises_as_a_response_is_the_response() -> None:
    auth = AuthSettings(
        issuer_url=AnyHttpUrl("https://id.example"), resource_server_url=None, validate_token_resource=False
    )
    server = Tasks(MemoryStore()).server("unsure", auth=auth, token_verifier=Unsure())
    async with asking(server.streamable_http_app()) as client:
        reply = await client.post("/mcp", headers={"Authorization": "Bearer x"}, json={})
        assert (reply.status_code, reply.text, reply.headers["retry-after"]) == (503, "ask later\n", "7")
        assert "www-authenticate" not in reply.headers
        assert (await client.post("/mcp", json={})).status_code == 401  # nobody asked the verifier


class Troubled:
    """Raises outside of where Starlette looks after it; after the response has begun, if it has anything to say."""

    def __init__(self, app: ASGIApp, says: Iterable[str]) -> None:
        self._app = app
        self._says = says

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        for _ in self._says:
            await self._app(scope, receive, send)
        raise AWAY


async def test_a_response_that_has_begun_is_not_begun_again() -> None:
    async def something(_: object) -> PlainTextResponse:
        return PlainTextResponse("something")

    app = Starlette(routes=[Route("/", something)])
    app.add_middleware(Troubled, ["once"])
    async with asking(heard(app)) as client:
        with pytest.raises(HTTPException):
            await client.get("/")


def troubled() -> Starlette:
    app = Starlette(routes=[])
    app.add_middleware(Troubled, [])
    return heard(app)


async def test_twice_does_no_harm() -> None:
    async with asking(heard(troubled())) as client:
        assert (await client.get("/")).status_code == 503


async def test_what_is_no_request_has_no_response() -> None:
    with pytest.raises(HTTPException):
        await troubled()({"type": "lifespan"}, nothing, sent)


async def nothing() -> Message:
    raise AssertionError


async def sent(_: Message) -> None:
    raise AssertionError
