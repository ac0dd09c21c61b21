"""What becomes of a session, its waits and its calls where a token can't be had: `HTTP(auth=…)`, and who issues it."""

import asyncio
import inspect
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from mcp.client import Client
from mcp.client.auth import OAuthFlowError, OAuthRegistrationError, OAuthTokenError, oauth2, utils
from mcp.client.auth.extensions import client_credentials, identity_assertion
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from mcp.shared.exceptions import MCPError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from perdure.client import HTTP, RequestRefused, Tasks, Unsure, faults, tokens
from perdure.store.sqlite import SQLiteStore
from tests.client.support import text
from tests.support import PATIENCE, eventually
from tests.wire.support import hosting, tasks_on
from tests.wire.tools import Tools

SECRET = "sesame"
REFUSED = JSONResponse({"error": "invalid_grant", "error_description": SECRET}, 400)


def status_error(status: int) -> httpx2.HTTPStatusError:
    request = httpx2.Request("POST", f"http://issuer/{SECRET}")
    return httpx2.HTTPStatusError(SECRET, request=request, response=httpx2.Response(status, request=request))


def failed(status: int, body: str = SECRET) -> OAuthTokenError:
    return OAuthTokenError(f"Token exchange failed ({status}): {body}")


PASSES, IS_BORNE, ENDS = "passes", "is borne", "ends"


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (failed(503), PASSES),
        (failed(500), PASSES),
        (failed(429), PASSES),
        (failed(400), ENDS),
        (failed(401, '{"error": "invalid_client"}'), ENDS),
        (failed(403), ENDS),
        (failed(404), IS_BORNE),
        (failed(307), IS_BORNE),
        (OAuthTokenError(f"Invalid token response: {SECRET}"), IS_BORNE),
        (OAuthRegistrationError(f"Registration failed: 503 {SECRET}"), PASSES),
        (OAuthRegistrationError(f"Registration failed: 400 {SECRET}"), ENDS),
        (OAuthRegistrationError(f"Invalid registration response: {SECRET}"), ENDS),
        (OAuthFlowError("Protected resource metadata request failed: HTTP 502"), PASSES),
        (OAuthFlowError("No authorization server metadata discovered for configured issuer x"), IS_BORNE),
        (OAuthFlowError(f"State parameter mismatch: {SECRET} != x"), ENDS),
        (httpx2.ConnectError(SECRET), PASSES),
        (httpx2.DecodingError(SECRET), IS_BORNE),
        (status_error(503), PASSES),
        (status_error(404), IS_BORNE),
        (status_error(401), ENDS),
        (UnicodeDecodeError("utf-8", SECRET.encode(), 0, 1, "invalid start byte"), IS_BORNE),
        (KeyError(SECRET), IS_BORNE),
        (httpx2.InvalidURL(SECRET), IS_BORNE),
    ],
)
def test_an_issuer_may_be_away_for_a_moment_or_refuse_for_good_and_what_it_said_is_not_told(
    error: Exception, what: str
) -> None:
    for begun in (True, False):
        answer = MCPError(**tokens.missing(error, begun=begun))
        fault = faults.judge(answer, "t")
        comes_to = {(True, False): PASSES, (False, True): IS_BORNE, (False, False): ENDS}
        assert comes_to[fault.ends is None, fault.is_odd] == what
        assert faults.may_have_arrived(answer) is begun
        assert SECRET not in str(answer) + str(answer.data)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ('{"error": "invalid_grant"}', ", invalid_grant"),
        ('{"error":"invalid_client","error_description":"x"}', ", invalid_client"),
        (f'{{"error": "{SECRET}"}}', ""),
    ],
)
def test_of_what_an_issuer_says_the_words_of_the_standard_are_told(body: str, named: str) -> None:
    assert tokens.missing(failed(400, body), begun=False)["message"].endswith(
        f": its issuer says HTTP status 400{named}"
    )


def test_what_the_sdk_says_of_tokens_still_begins_as_it_is_known_by() -> None:
    words = "".join(inspect.getsource(module) for module in (oauth2, utils, client_credentials, identity_assertion))
    for beginning in (*tokens.BEGINNINGS, *tokens.MAY_PASS):
        assert f'f"{beginning}' in words


# -- with the SDK's provider -------------------------------------------------------------------------------------------


class Issuer:
    """Before an application: issues tokens at `/token`, and lets nobody in without the newest.

    `refusal` is said in place of a token; `asked` counts. `desk`: where else tokens are said to be issued.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.refusal: Response | None = None
        self.asked = 0
        self.desk: str | None = None
        self._good: str | None = None

    def revoke(self) -> None:
        self._good = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app if scope["type"] != "http" else self._answer(Request(scope))
        await app(scope, receive, send)

    def _answer(self, request: Request) -> ASGIApp:
        origin = str(request.base_url).rstrip("/")
        match request.url.path:
            case "/.well-known/oauth-authorization-server":
                authorizes = {"authorization_endpoint": f"{origin}/authorize", "response_types_supported": ["code"]}
                return JSONResponse({"issuer": origin, "token_endpoint": f"{self.desk or origin}/token", **authorizes})
            case "/token":
                self.asked += 1
                return self.refusal or self._token()
            case "/mcp" if self._good and request.headers.get("authorization") == f"Bearer {self._good}":
                return self._app
            case "/mcp":
                return Response("who?", 401)
            case _:
                return Response("nothing here", 404)

    def _token(self) -> Response:
        self._good = f"token-{self.asked}"
        return JSONResponse({"access_token": self._good, "token_type": "Bearer", "expires_in": 3600})


class Pocket:
    """Where the SDK keeps tokens."""

    tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None: ...


@asynccontextmanager
async def guarded(tmp_path: Path, tools: Tools, tasks: Tasks) -> AsyncGenerator[tuple[Issuer, Client]]:
    """A server behind an issuer, polled ten times a second, and a client that has the SDK's provider."""
    served = tasks_on(SQLiteStore(f"sqlite:///{tmp_path / 'tasks.db'}"))
    mcp = served.server("wire", version="1.0")
    served.tool(poll_interval="100ms")(tools.gated)
    issuer = Issuer(mcp.streamable_http_app())
    async with hosting(issuer) as (_, origin):
        url = f"{origin}/mcp"
        auth = ClientCredentialsOAuthProvider(url, Pocket(), "me", SECRET, issuer=origin)
        async with Client(HTTP(url, auth=auth, verify=False), extensions=[tasks]) as client:
            yield issuer, client


PAGE = Response("<html>", 200, media_type="text/html")


@pytest.mark.parametrize("refusal", [Response("away", 503), Response(b"\xff", 502), PAGE], ids=["503", "502", "page"])
async def test_a_wait_outlives_an_issuer_that_is_away_for_a_moment(
    tmp_path: Path, tools: Tools, refusal: Response
) -> None:
    tasks = Tasks(listen=False)
    async with guarded(tmp_path, tools, tasks) as (issuer, client):
        handle = await tasks.start(client, "gated")
        wait = asyncio.create_task(handle.result(PATIENCE))
        issuer.refusal = refusal
        issuer.revoke()
        before = issuer.asked
        await eventually(lambda: issuer.asked >= before + 2 and handle.trouble is not None, "a token is asked for")
        issuer.refusal = None
        tools.gate.set()
        assert text(await wait) == "through"


async def test_an_issuer_that_refuses_for_good_ends_a_wait_at_once_and_leaves_the_session(
    tmp_path: Path, tools: Tools
) -> None:
    tasks = Tasks()
    async with guarded(tmp_path, tools, tasks) as (issuer, client):
        handle = await tasks.start(client, "gated")
        issuer.refusal = REFUSED
        issuer.revoke()
        before = issuer.asked
        with pytest.raises(RequestRefused, match=r"there is none: .* 400, invalid_grant") as refused:
            await handle.result(PATIENCE)
        assert issuer.asked <= before + 2, "by a poll and by a stream"
        assert SECRET not in str(refused.value)
        issuer.refusal = None
        tools.gate.set()
        assert text(await handle.result(PATIENCE)) == "through"


async def test_a_call_is_not_unsure_either_where_the_issuer_can_not_be_reached(tmp_path: Path, tools: Tools) -> None:
    tasks = Tasks(listen=False)
    async with hosting(Starlette()) as (_, gone):
        pass
    async with guarded(tmp_path, tools, tasks) as (issuer, client):
        handle = await tasks.start(client, "gated")
        issuer.desk = gone
        issuer.revoke()
        with pytest.raises(MCPError, match=r"there is none: ConnectError"):
            await tasks.start(client, "gated")
        wait = asyncio.create_task(handle.result(PATIENCE))
        await eventually(lambda: handle.trouble is not None, "it is asked for in vain")
        issuer.desk = None
        tools.gate.set()
        assert text(await wait) == "through"
    assert len(tasks.journal.records()) == 1


@pytest.mark.parametrize("refusal", [REFUSED, Response("away", 503)], ids=["for good", "for a moment"])
async def test_a_call_whose_token_is_refused_was_not_made_and_is_not_unsure(
    tmp_path: Path, tools: Tools, refusal: Response
) -> None:
    tasks = Tasks()
    async with guarded(tmp_path, tools, tasks) as (issuer, client):
        issuer.refusal = refusal
        issuer.revoke()
        with pytest.raises(MCPError, match=r"there is none: its issuer says HTTP status"):
            await tasks.start(client, "gated")
    assert tasks.journal.records() == []


@pytest.mark.parametrize("sends_a_copy", [False, True])
async def test_a_call_whose_auth_comes_to_an_error_after_it_was_sent_may_have_been_made(
    tmp_path: Path, tools: Tools, sends_a_copy: bool
) -> None:

    def copied(request: httpx2.Request) -> httpx2.Request:
        return httpx2.Request(request.method, request.url, headers=request.headers, content=request.content)

    class Signed(httpx2.Auth):
        fails, copies = False, sends_a_copy

        async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
            yield copied(request) if self.copies else request
            if self.fails and request.headers.get("mcp-method") == "tools/call":
                raise KeyError(SECRET)

    auth, tasks = Signed(), Tasks()
    served = tasks_on(SQLiteStore(f"sqlite:///{tmp_path / 'tasks.db'}"))
    mcp = served.server("wire", version="1.0")
    mcp.tool()(tools.hello)
    async with (
        hosting(mcp.streamable_http_app()) as (_, origin),
        Client(HTTP(f"{origin}/mcp", auth=auth, verify=False), extensions=[tasks]) as client,
    ):
        auth.fails = True
        with pytest.raises(Unsure):
            await tasks.start(client, "hello", {"name": "Ada"})
    assert len(tasks.journal.records()) == 1
