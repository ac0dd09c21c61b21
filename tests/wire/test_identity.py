"""Whose task it is. Foreign, unknown and purged are one answer, byte for byte (contract 6, design 8)."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.context import ServerRequestContext
from pydantic import AnyHttpUrl

from perdure import Owner, TaskContext, Tasks
from perdure.domain.limits import MAX_IDEMPOTENCY_KEY, MAX_PRINCIPAL, MAX_TENANT
from tests.wire.envelopes import EVERYTHING, INPUT, JSON, envelope, meta
from tests.wire.support import Client, Stage, stage
from tests.wire.tools import FORM, Form

UNKNOWN = "tsk_" + "a" * 32
MINUTE = 60_000

TOKENS: dict[str, tuple[str, str | None, str | None, dict[str, Any]]] = {
    "ada": ("app", "https://id.example", "ada", {}),
    "ada again": ("app", "https://id.example", "ada", {"jti": "another"}),
    "bob": ("app", "https://id.example", "bob", {}),
    "ada of another issuer": ("app", "https://other.example", "ada", {}),
    "ada by another client": ("cli", "https://id.example", "ada", {}),
    "ada of no issuer": ("app", None, "ada", {}),
    "the client itself": ("app", "https://id.example", None, {}),
    "ada in tenant 1": ("app", "https://id.example", "ada", {"org": "1"}),
    "ada in tenant 2": ("app", "https://id.example", "ada", {"org": "2"}),
    "ada in tenant 1 as a number": ("app", "https://id.example", "ada", {"org": 1}),
    "ada in tenant null": ("app", "https://id.example", "ada", {"org": None}),
    "ada in tenant empty": ("app", "https://id.example", "ada", {"org": ""}),
    "ada in tenant true": ("app", "https://id.example", "ada", {"org": True}),
    "ada in tenant 1.0": ("app", "https://id.example", "ada", {"org": 1.0}),
    "ada in two tenants": ("app", "https://id.example", "ada", {"org": ["1", "2"]}),
    "ada in a tenant with a name": ("app", "https://id.example", "ada", {"org": {"id": "1"}}),
}


BAD: dict[str, Any] = {
    "empty": "",
    "blank": " \t",
    "null": "ada\0",
    "surrogate": "ada\ud800",
    "endless": "a" * 20_000,
    "wide": "\N{SNOWMAN}" * 500,
}
"""Names that name nobody, or that no store could take. One that is wrong is the only thing wrong with its token."""
TOKENS.update({f"client {what}": (name, "https://id.example", "ada", {"org": "1"}) for what, name in BAD.items()})
TOKENS.update({f"issuer {what}": ("app", name, "ada", {"org": "1"}) for what, name in BAD.items()})
TOKENS.update({f"subject {what}": ("app", "https://id.example", name, {"org": "1"}) for what, name in BAD.items()})
TOKENS.update({f"tenant {what}": ("app", "https://id.example", "ada", {"org": name}) for what, name in BAD.items()})
TOKENS["issuer in a list"] = ("app", None, "ada", {"iss": ["https://id.example"], "org": "1"})
TOKENS["tenant without end"] = ("app", "https://id.example", "ada", {"org": 10**4_000})
NOBODY = [
    *(f"{part} {what}" for part in ("client", "issuer", "subject", "tenant") for what in BAD),
    "issuer in a list",
    "tenant without end",
]


class Verifier:
    """Tokens are names here."""

    async def verify_token(self, token: str) -> AccessToken | None:
        if token not in TOKENS:
            return None
        client, issuer, subject, claims = TOKENS[token]
        claims = claims if issuer is None else {"iss": issuer, **claims}
        return AccessToken(token=token, client_id=client, scopes=[], subject=subject, claims=claims)


class Hands:
    def __init__(self) -> None:
        self.now = 1_800_000_000_000

    def __call__(self) -> int:
        return self.now


def declare(tasks: Tasks) -> None:
    @tasks.tool(ttl="1m")
    async def mine(task: TaskContext) -> list[str]:
        await task.elicit("form", "All right?", Form)
        return [task.owner.tenant, task.owner.principal]


@asynccontextmanager
async def guarded(tmp_path: Path, **options: Any) -> AsyncGenerator[Stage]:
    auth = AuthSettings(
        issuer_url=AnyHttpUrl("https://id.example"), resource_server_url=None, validate_token_resource=False
    )
    async with stage(tmp_path, declare, server={"auth": auth, "token_verifier": Verifier()}, **options) as up:
        yield up


async def raw(client: Client, method: str, task_id: str) -> bytes:
    """The answer to one request about a task, byte for byte; the id of the request is always the same."""
    body = envelope(method, {"taskId": task_id, "inputResponses": {"form": FORM}}, id="same")
    reply = client.judge(body, await client.exchange(body))
    return str(reply.status).encode() + reply.raw.replace(task_id.encode(), b"ID")


async def test_without_a_good_token_nothing_is_served(tmp_path: Path) -> None:
    async with guarded(tmp_path) as up:
        for token in (None, "mallory", "Ada", "ada\ttab"):
            body = envelope("tools/call", {"name": "mine"})
            assert (await up.client.bearing(token).exchange(body)).status == 401
        assert dict(up.dump())["task"] == []


async def test_two_users_do_not_see_each_others_tasks(tmp_path: Path) -> None:
    async with guarded(tmp_path) as up:
        ada, bob = up.client.bearing("ada"), up.client.bearing("bob")
        hers, his = await ada.start("mine"), await bob.start("mine")
        for client, own, foreign in ((ada, hers, his), (bob, his, hers)):
            await client.until(own, "input_required")
            for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                assert await raw(client, method, foreign) == await raw(client, method, UNKNOWN)
        for client, own in ((ada, hers), (bob, his)):
            assert (await client.get(own)).result["status"] == "input_required"


async def test_every_part_of_the_principal_counts_and_nothing_else_does(tmp_path: Path) -> None:
    async with guarded(tmp_path) as up:
        task_id = await up.client.bearing("ada").start("mine")
        for token in TOKENS.keys() - {*NOBODY}:
            reply = await up.client.bearing(token).get(task_id)
            same = TOKENS[token][:3] == TOKENS["ada"][:3]
            assert ("result" in reply.body) is same, token


async def test_a_tenant_is_a_claim_of_the_token_if_it_is_configured(tmp_path: Path) -> None:
    async with guarded(tmp_path, tenant_claim="org") as up:
        one, two = up.client.bearing("ada in tenant 1"), up.client.bearing("ada in tenant 2")
        task_id = await one.start("mine")
        await one.until(task_id, "input_required")
        assert await raw(two, "tasks/get", task_id) == await raw(two, "tasks/get", UNKNOWN)
        assert await raw(up.client.bearing("ada"), "tasks/get", task_id) == await raw(one, "tasks/get", UNKNOWN)
        await one.update(task_id, {"form": FORM})
        tenant, principal = (await one.until(task_id))["result"]["structuredContent"]["result"]
        assert (tenant, principal) == ("1", '["https://id.example","app","ada"]')


async def test_a_tenant_is_a_text_or_a_whole_number(tmp_path: Path) -> None:
    async with guarded(tmp_path, tenant_claim="org") as up:
        task_id = await up.client.bearing("ada in tenant 1").start("mine")
        assert "result" in (await up.client.bearing("ada in tenant 1 as a number").get(task_id)).body


async def test_a_tenant_claim_that_can_not_be_used_is_refused_and_never_a_tenant_that_others_share(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path, tenant_claim="org") as up:
        task_id = await up.client.bearing("ada").start("mine")
        for token in (
            "ada in tenant null",
            "ada in tenant empty",
            "ada in tenant true",
            "ada in tenant 1.0",
            "ada in two tenants",
            "ada in a tenant with a name",
        ):
            ada = up.client.bearing(token)
            for reply in (await ada.call("mine"), await ada.call("mine", capabilities=INPUT), await ada.get(task_id)):
                assert reply.code == -32600, token
                assert "tenant" in reply.error["message"]
        assert len(dict(up.dump())["task"]) == 1


@pytest.mark.parametrize("token", NOBODY)
async def test_a_token_with_a_name_that_names_nobody_owns_nothing(tmp_path: Path, token: str) -> None:
    """Empty ones would throw users together, and the others could be kept by one database and not by another."""
    async with guarded(tmp_path, tenant_claim="org") as up:
        nobody = up.client.bearing(token)
        replies = [await nobody.call("mine"), await nobody.call("mine", capabilities=INPUT), await nobody.get(UNKNOWN)]
        for reply in replies:
            assert reply.code == -32600
            assert reply.error["message"].startswith("The access token names no")
        assert dict(up.dump())["task"] == []


async def test_foreign_unknown_and_purged_are_the_same_bytes_and_only_the_owner_hears_of_expiry(tmp_path: Path) -> None:
    clock = Hands()
    async with guarded(tmp_path, clock=clock) as up:
        ada, bob = up.client.bearing("ada"), up.client.bearing("bob")
        task_id = await ada.start("mine")
        await ada.until(task_id, "input_required")
        clock.now += MINUTE
        await up.store.expire(10)
        await up.store.purge(10, linger_ms=0, tombstone_ms=MINUTE)
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            unknown = await raw(bob, method, UNKNOWN)
            assert await raw(bob, method, task_id) == unknown
            assert b"Task has expired" in await raw(ada, method, task_id)
        clock.now += MINUTE
        await up.store.purge(10, linger_ms=0, tombstone_ms=MINUTE)
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            unknown = await raw(bob, method, UNKNOWN)
            assert await raw(bob, method, task_id) == await raw(ada, method, task_id) == unknown


async def test_the_state_of_a_round_trip_is_good_for_its_own_user_only(tmp_path: Path) -> None:
    async with guarded(tmp_path) as up:
        ada, bob = up.client.bearing("ada"), up.client.bearing("bob")
        first = await ada.call("mine", capabilities=INPUT)
        params = {"requestState": first.result["requestState"], "inputResponses": {"form": FORM}}
        assert (await bob.call("mine", params=params, capabilities=INPUT)).code == -32602
        assert (await ada.call("mine", params=params, capabilities=INPUT)).result["isError"] is False


async def test_nothing_that_a_client_writes_into_a_request_has_a_say(tmp_path: Path) -> None:
    async with guarded(tmp_path) as up:
        ada, bob = up.client.bearing("ada"), up.client.bearing("bob")
        task_id = await ada.start("mine")
        claims: JSON = {"owner": "ada", "tenant": "", "dev.perdure/owner": "ada", "principal": "ada"}
        params: JSON = {"taskId": task_id, "owner": "ada", "principal": "ada", "_meta": meta(EVERYTHING) | claims}
        reply = await bob.request("tasks/get", params, extra={"x-forwarded-user": "ada", "mcp-session-id": "ada"})
        assert reply.error == {"code": -32602, "message": "Task not found"}


async def test_many_users_at_once_stay_apart(tmp_path: Path) -> None:
    async with guarded(tmp_path) as up:
        users = {token: up.client.bearing(token) for token in ("ada", "bob", "ada by another client")}
        whose = list(users) * 4
        ids = await asyncio.gather(*(users[token].start("mine") for token in whose))
        for token, user in users.items():
            seen = {task_id for task_id in ids if "result" in (await user.get(task_id)).body}
            assert seen == {task_id for owner, task_id in zip(whose, ids, strict=True) if owner == token}


async def test_without_authentication_the_id_is_the_key(scene: Stage) -> None:
    """One anonymous owner over HTTP: whoever knows the id may use it, and nobody can guess one."""
    task_id = await scene.client.start("gated")
    assert (await scene.client.bearing(None).get(task_id)).result["status"] == "working"
    assert [row[2:4] for row in dict(scene.dump())["task"]] == [("", "anonymous")]


async def test_a_server_may_identify_its_users_itself(tmp_path: Path) -> None:
    def identify(ctx: ServerRequestContext[Any, Any]) -> Owner:
        assert ctx.request is not None
        return Owner("", ctx.request.headers["x-user"])

    async with stage(tmp_path, declare, identify=identify) as up:
        task_id = await up.client.start("mine", extra={"x-user": "ada"})
        assert (await up.client.get(task_id, extra={"x-user": "bob"})).code == -32602
        await up.client.until(task_id, "input_required", extra={"x-user": "ada"})


# -- a function of the server's own that is wrong ----------------------------------------------------------------------


async def later() -> Owner:
    return Owner("acme", "ada")


class Fails(Exception):
    pass


def fails() -> Owner:
    raise Fails("secret-detail")


RETURNED: dict[str, tuple[Any, str]] = {
    "a pair": (lambda: ("acme", "ada"), "identify= returned a tuple, and no Owner, which is -32603 to the client"),
    "nothing": (lambda: None, "identify= returned a NoneType, and no Owner, which is -32603 to the client"),
    "a coroutine": (later, "identify= returned a coroutine, and no Owner, which is -32603 to the client"),
    "numbers": (
        lambda: Owner(1, 2),  # pyright: ignore[reportArgumentType]
        "identify= returned an Owner of other things than texts, which is -32603 to the client",
    ),
    "an exception": (fails, "identify= raised Fails, which is -32603 to the client"),
}


@pytest.mark.parametrize("what", RETURNED)
async def test_a_wrong_function_is_told_of_once_a_minute_and_the_client_hears_of_an_internal_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    wrong, said = RETURNED[what]

    def identify(_: object) -> Any:
        return wrong()

    async with stage(tmp_path, declare, identify=identify) as up:
        for _ in range(10):
            for reply in (await up.client.call("mine"), await up.client.get(UNKNOWN)):
                assert reply.error == {"code": -32603, "message": "Internal error"}
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert told == [said]
    assert caplog.text.count("Traceback") == (what == "an exception")


@pytest.mark.parametrize(
    "owner",
    [Owner("", ""), Owner("acme", " "), *(Owner(name, "ada") for name in BAD.values() if name)]
    + [Owner("acme", name) for name in BAD.values()],
)
async def test_names_that_a_function_returns_have_to_be_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, owner: Owner
) -> None:
    def identify(_: object) -> Owner:
        return owner

    async with stage(tmp_path, declare, identify=identify) as up:
        for reply in (await up.client.call("mine"), await up.client.get(UNKNOWN)):
            assert reply.code == -32600
        assert dict(up.dump())["task"] == []
    assert [record.name for record in caplog.records if record.levelno >= logging.WARNING] == ["perdure.wire.identity"]


async def test_the_longest_names_can_be_stored_by_every_store() -> None:
    """What is within bounds must fit into the keys of PostgreSQL's indexes, beside the longest idempotency key."""
    assert MAX_TENANT + MAX_PRINCIPAL + 4 * MAX_IDEMPOTENCY_KEY < 2_600
