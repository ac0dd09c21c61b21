"""Tokens for tokens, against an authorization server on loopback; and what is forwarded as it is."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs

import pytest
from mcp.server.auth.provider import AccessToken

from perdure.domain.errors import ConfigurationError
from perdure.domain.model import Owner
from perdure.gateway import token_exchange as module
from perdure.gateway.faults import IdentityRefused, IdentityUnavailable
from perdure.gateway.identity import Anonymous, ExchangeTerms, ForwardToken, TokenExchange
from tests.support import PATIENCE, eventually

from .raw_backend import Answer, Asked, Liar, liar, response

ADA = Owner("", "ada")
GRANT = {
    "access_token": "for-b",
    "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
    "token_type": "Bearer",
    "expires_in": 300,
}


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def token(text: str = "ada's", **others: Any) -> AccessToken:
    return AccessToken(token=text, client_id="app", scopes=[], **others)


def grants(body: Any = GRANT, status: str = "200 OK") -> Answer:
    async def answer(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(response(body, status))

    return answer


@asynccontextmanager
async def exchanging(
    answer: Answer, *, clock: Callable[[], float] | None = None, **options: Any
) -> AsyncGenerator[tuple[Liar, TokenExchange]]:
    async with liar(answer) as server:
        wanted = {"audience": "https://b.example/mcp", **options}
        exchange = TokenExchange("b", ExchangeTerms(server.url, "gate way", "s:cret", **wanted), now=clock or Clock())
        try:
            yield server, exchange
        finally:
            await exchange.aclose()


def form(asked: Asked) -> Mapping[str, list[str]]:
    return parse_qs(asked.body.decode(), strict_parsing=True)


async def test_a_token_is_exchanged_as_the_standard_has_it() -> None:
    async with exchanging(grants(), resource="https://b.example", scope="tasks") as (server, exchange):
        assert await exchange.headers(ADA, token()) == {"authorization": "Bearer for-b"}
    assert form(server.asked[0]) == {
        "grant_type": ["urn:ietf:params:oauth:grant-type:token-exchange"],
        "subject_token": ["ada's"],
        "subject_token_type": ["urn:ietf:params:oauth:token-type:access_token"],
        "requested_token_type": ["urn:ietf:params:oauth:token-type:access_token"],
        "audience": ["https://b.example/mcp"],
        "resource": ["https://b.example"],
        "scope": ["tasks"],
    }
    basic = server.asked[0].headers["authorization"].removeprefix("Basic ")
    assert base64.b64decode(basic) == b"gate%20way:s%3Acret"
    assert server.asked[0].headers["content-type"] == "application/x-www-form-urlencoded"


async def test_what_was_got_is_kept_until_shortly_before_it_expires_for_each_token() -> None:
    clock = Clock()
    async with exchanging(grants(), clock=clock) as (server, exchange):
        for _ in range(3):
            await exchange.headers(ADA, token())
        await exchange.headers(ADA, token("bob's"))
        assert len(server.asked) == 2
        clock.now += 269
        await exchange.headers(ADA, token())
        assert len(server.asked) == 2
        clock.now += 1
        await exchange.headers(ADA, token())
        assert len(server.asked) == 3


async def test_one_that_is_said_to_last_for_ever_is_kept_for_a_day() -> None:
    clock = Clock()
    async with exchanging(grants({**GRANT, "expires_in": 10**400}), clock=clock) as (server, exchange):
        await exchange.headers(ADA, token())
        clock.now += 86_000
        await exchange.headers(ADA, token())
        assert len(server.asked) == 1
        clock.now += 400
        await exchange.headers(ADA, token())
        assert len(server.asked) == 2


async def test_it_is_not_kept_longer_than_the_clients_own_token_lasts() -> None:
    clock = Clock()
    async with exchanging(grants(), clock=clock) as (server, exchange):
        await exchange.headers(ADA, token(expires_at=1_100))
        clock.now = 1_100
        await exchange.headers(ADA, token(expires_at=1_100))
    assert len(server.asked) == 2


async def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEPT", 2)
    async with exchanging(grants()) as (server, exchange):
        for text in ("a", "b", "a", "c", "a", "b"):
            await exchange.headers(ADA, token(text))
    assert [form(asked)["subject_token"] for asked in server.asked] == [["a"], ["b"], ["c"], ["b"]]


async def test_all_who_come_with_one_token_wait_for_one_exchange() -> None:
    go_on = asyncio.Event()

    async def answer(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        await go_on.wait()
        writer.write(response(GRANT))

    async with exchanging(answer) as (server, exchange), asyncio.TaskGroup() as group:
        waiting = [group.create_task(exchange.headers(ADA, token())) for _ in range(20)]
        await eventually(lambda: bool(server.asked), "it was asked")
        go_on.set()
        await asyncio.wait(waiting)
        assert len(server.asked) == 1


async def test_when_who_began_the_exchange_goes_away_another_one_begins_it_anew() -> None:
    go_on = asyncio.Event()

    async def answer(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        await go_on.wait()
        writer.write(response(GRANT))

    async with exchanging(answer) as (server, exchange):
        first = asyncio.create_task(exchange.headers(ADA, token()))
        await eventually(lambda: len(server.asked) == 1, "it was asked")
        second = asyncio.create_task(exchange.headers(ADA, token()))
        await asyncio.sleep(0)
        first.cancel()
        await eventually(lambda: len(server.asked) == 2, "it was asked again")
        go_on.set()
        assert await asyncio.wait_for(second, PATIENCE) == {"authorization": "Bearer for-b"}


async def test_an_answer_that_nobody_asked_for_is_not_the_next_users_token() -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        (text,) = form(asked)["subject_token"]
        good = response({**GRANT, "access_token": f"for-{text}"})
        writer.write(good + response({**GRANT, "access_token": "somebody-elses"}))

    async with exchanging(answer) as (_, exchange):
        for text in ("ada", "bob"):
            assert await exchange.headers(ADA, token(text)) == {"authorization": f"Bearer for-{text}"}


@pytest.mark.parametrize(
    "error", ["invalid_grant", "invalid_request", "invalid_target", "invalid_scope", "access_denied"]
)
async def test_a_token_that_buys_none_is_refused_and_that_is_remembered_for_a_moment(error: str) -> None:
    clock = Clock()
    refusal = grants({"error": error, "error_description": "<secret>"}, "400 Bad Request")
    async with exchanging(refusal, clock=clock) as (server, exchange):
        for _ in range(3):
            with pytest.raises(IdentityRefused) as caught:
                await exchange.headers(ADA, token())
            assert "secret" not in str(caught.value)
        assert len(server.asked) == 1
        clock.now += 5
        with pytest.raises(IdentityRefused):
            await exchange.headers(ADA, token())
        assert len(server.asked) == 2


AWAY: Mapping[str, Answer] = {
    "a gateway that is not known there": grants({"error": "invalid_client"}, "401 Unauthorized"),
    "a method that is not offered": grants({"error": "unsupported_grant_type"}, "400 Bad Request"),
    "an error that is none": grants({"error": ["x"]}, "400 Bad Request"),
    "an error of its own": grants({}, "500 Internal Server Error"),
    "no JSON": grants(b"<html>"),
    "too much": grants({**GRANT, "more": "a" * 100_000}),
    "no token": grants({**GRANT, "access_token": None}),
    "a token that would make another header": grants({**GRANT, "access_token": "a\r\nx: b"}),
    "a token of two words": grants({**GRANT, "access_token": "a b"}),
    "an empty token": grants({**GRANT, "access_token": ""}),
    "another scheme": grants({**GRANT, "token_type": "N_A"}),
    "another type": grants({**GRANT, "issued_token_type": "urn:ietf:params:oauth:token-type:refresh_token"}),
    "a type that nobody knows": grants({**GRANT, "issued_token_type": "x"}),
    "a type that is none": grants({**GRANT, "issued_token_type": []}),
    "no life": grants({**GRANT, "expires_in": 0}),
    "a life that is none": grants({**GRANT, "expires_in": "300"}),
    "a redirect": grants(GRANT, "307 Temporary Redirect"),
}


@pytest.mark.parametrize("how", AWAY)
async def test_an_authorization_server_that_gives_none_is_away_and_is_asked_again(how: str) -> None:
    async with exchanging(AWAY[how]) as (server, exchange):
        for _ in range(2):
            with pytest.raises(IdentityUnavailable):
                await exchange.headers(ADA, token())
        assert len(server.asked) == 2


async def test_an_authorization_server_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.05)

    async def answer(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        await asyncio.Event().wait()

    async with exchanging(answer) as (_, exchange):
        with pytest.raises(IdentityUnavailable):
            await exchange.headers(ADA, token())


async def test_an_authorization_server_that_is_not_there_is_away() -> None:
    async with exchanging(grants()) as (server, _):
        pass
    exchange = TokenExchange("b", ExchangeTerms(server.url, "g", "s", audience="b"))
    with pytest.raises(IdentityUnavailable):
        await exchange.headers(ADA, token())
    await exchange.aclose()


async def test_without_a_token_there_is_nothing_to_exchange() -> None:
    async with exchanging(grants()) as (server, exchange):
        with pytest.raises(IdentityRefused):
            await exchange.headers(ADA, None)
        assert not server.asked


@pytest.mark.parametrize("endpoint", ["http://login.example/token", "ftp://127.0.0.1/", "", "http://[::1"])
def test_a_secret_is_sent_nowhere_where_it_can_be_read_on_the_way(endpoint: str) -> None:
    with pytest.raises(ConfigurationError):
        TokenExchange("b", ExchangeTerms(endpoint, "g", "s", audience="b"))


def test_it_has_to_be_said_who_tokens_are_for() -> None:
    with pytest.raises(ConfigurationError):
        TokenExchange("b", ExchangeTerms("https://login.example/token", "g", "s"))


def test_nothing_shows_the_secret() -> None:
    assert "hush" not in repr(ExchangeTerms("https://login.example/token", "g", "hush", audience="b"))


# -- forwarding --------------------------------------------------------------------------------------------------------

FOR_B = "https://b.example/mcp"


@pytest.mark.parametrize("audience", [FOR_B, ["https://gateway.example/mcp", FOR_B]])
async def test_a_token_goes_on_to_a_backend_that_its_audience_names(audience: Any) -> None:
    passing = ForwardToken("b", FOR_B)
    assert await passing.headers(ADA, token(claims={"aud": audience})) == {"authorization": "Bearer ada's"}


@pytest.mark.parametrize(
    "those",
    [
        {},
        {"resource": "https://gateway.example/mcp"},
        {"claims": {"aud": "https://gateway.example/mcp"}},
        {"claims": {"aud": FOR_B + "/"}},
        {"claims": {"aud": [["https://b.example/mcp"], 7, None]}},
        {"claims": {"aud": "https://gateway.example/mcp"}, "resource": FOR_B},
        {"claims": {"aud": []}, "resource": FOR_B},
    ],
)
async def test_any_other_token_stays_here(those: dict[str, Any]) -> None:
    with pytest.raises(IdentityRefused) as caught:
        await ForwardToken("b", FOR_B).headers(ADA, token(**those))
    assert "ada" not in str(caught.value)


async def test_a_token_that_is_known_by_its_resource_alone_goes_on_too() -> None:
    assert await ForwardToken("b", FOR_B).headers(ADA, token(resource=FOR_B))


async def test_without_a_token_nothing_is_forwarded_and_to_some_nothing_ever_is() -> None:
    with pytest.raises(IdentityRefused):
        await ForwardToken("b", FOR_B).headers(ADA, None)
    assert await Anonymous().headers(ADA, token(claims={"aud": FOR_B})) == {}
