"""Whose task it is, by tokens as they come: signed, of several issuers, whose keys change. Over HTTP, all of it.

What checks them is `examples/jwt_tokens.py`, which users take over: what is shown here is what they get.
"""

import asyncio
import hmac
import importlib.util
import json
import logging
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from mcp.server.auth.settings import AuthSettings
from pydantic import AnyHttpUrl
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response

from perdure import TaskContext, Tasks
from tests.wire.authority import AUDIENCE, Authority, authority, unsigned
from tests.wire.envelopes import envelope
from tests.wire.listening import listening
from tests.wire.support import ROOT, Client, Stage, stage
from tests.wire.tools import FORM, Form

UNKNOWN: Final = "tsk_" + "a" * 32
METHODS: Final = ("tasks/get", "tasks/update", "tasks/cancel")


def declare(tasks: Tasks) -> None:
    @tasks.tool()
    async def mine(task: TaskContext) -> list[str]:
        await task.elicit("form", "All right?", Form)
        return [task.owner.tenant, task.owner.principal]


def loaded(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An example, as one that lies beside it would import it."""
    for variable, value in (("ISSUER", "https://id.example"), ("JWKS", "https://id.example/keys")):
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("AUDIENCE", AUDIENCE)
    monkeypatch.setenv("REQUEST_STATE_KEY", "0123456789abcdef" * 2)
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What users take over, but that it may ask for keys as often as it likes."""
    module = loaded("jwt_tokens", monkeypatch)
    monkeypatch.setattr(module, "PAUSE", 0)
    return module


def verifying(example: Any, *authorities: Authority) -> Any:
    return example.SignedTokens([example.Issuer(each.issuer, each.jwks) for each in authorities], AUDIENCE)


@asynccontextmanager
async def trusting(tmp_path: Path, example: Any, *authorities: Authority, **options: Any) -> AsyncGenerator[Stage]:
    """A server that takes the tokens of these."""
    auth = AuthSettings(
        issuer_url=AnyHttpUrl("https://id.example"),
        resource_server_url=AnyHttpUrl(AUDIENCE),
        validate_token_resource=True,
    )
    server = {"auth": auth, "token_verifier": verifying(example, *authorities)}
    async with stage(tmp_path, declare, server=server, **options) as up:
        yield up


async def answer(client: Client, method: str, task_id: str) -> tuple[int, bytes]:
    body = envelope(method, {"taskId": task_id, "inputResponses": {"form": FORM}}, id="same")
    reply = client.judge(body, await client.exchange(body))
    return reply.status, reply.raw


async def is_unknown(client: Client, task_id: str) -> bool:
    """Whether a task is to that client as one that never was, byte for byte."""
    pairs = [(await answer(client, method, task_id), await answer(client, method, UNKNOWN)) for method in METHODS]
    assert len({mine == other for mine, other in pairs}) == 1, "by some methods only"
    return pairs[0][0] == pairs[0][1]


async def owner_of(client: Client, task_id: str) -> list[str]:
    """Whose the task is, as its tool sees it; it is over then."""
    await client.until(task_id, "input_required")
    await client.update(task_id, {"form": FORM})
    return (await client.until(task_id))["result"]["structuredContent"]["result"]


# -- keys that change --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
async def test_a_task_keeps_its_owner_while_the_keys_of_the_issuer_change(
    tmp_path: Path, example: Any, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    async with authority(algorithm=algorithm) as issuer, trusting(tmp_path, example, issuer) as up:
        old = up.client.bearing(issuer.token("ada"))
        task_id = await old.start("mine")
        issuer.rotate(withdraw=False)
        new = up.client.bearing(issuer.token("ada"))
        for client in (old, new):
            assert not await is_unknown_to_get(client, task_id)
        issuer.rotate(withdraw=True)
        monkeypatch.setattr(example, "FRESH", 0)
        newest = up.client.bearing(issuer.token("ada"))
        assert await is_unknown(up.client.bearing(issuer.token("bob")), task_id)
        assert await owner_of(newest, task_id) == ["", '["https://id.example","app","ada"]']
        for client in (old, new):
            assert (await client.exchange(envelope("tasks/get", {"taskId": task_id}))).status == 401


async def is_unknown_to_get(client: Client, task_id: str) -> bool:
    """The same by a look alone, which changes nothing."""
    return await answer(client, "tasks/get", task_id) == await answer(client, "tasks/get", UNKNOWN)


async def test_keys_are_fetched_once_for_many_requests_and_not_for_whoever_names_keys_that_are_none(
    example: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(example, "PAUSE", 3_600)
    async with authority() as issuer:
        verifier, good = verifying(example, issuer), issuer.token("ada")
        found = await asyncio.gather(*(verifier.verify_token(good) for _ in range(20)))
        assert [access.subject for access in found] == ["ada"] * 20
        made_up = [issuer.signed(issuer.claims("ada"), issuer.keys[0], kid=f"no-{n}") for n in range(20)]
        assert await asyncio.gather(*map(verifier.verify_token, made_up)) == [None] * 20
        assert issuer.asked == 1


async def test_keys_that_are_known_outlast_an_issuer_that_is_away_but_not_for_ever(
    example: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken: list[Callable[[], Response]] = [
        lambda: PlainTextResponse("later", 503),
        lambda: PlainTextResponse("no JSON"),
        lambda: JSONResponse([]),
        lambda: JSONResponse({}),
        lambda: JSONResponse({"keys": "none"}),
        lambda: JSONResponse({"keys": [{"kty": "?"}]}),
    ]
    async with authority() as issuer:
        verifier, token = verifying(example, issuer), issuer.token("ada")
        issuer.answer = broken[0]
        assert await cant_tell(verifier, token)
        issuer.answer = None
        assert await verifier.verify_token(token) is not None
        monkeypatch.setattr(example, "FRESH", 0)
        for issuer.answer in broken:
            assert await verifier.verify_token(token) is not None
        monkeypatch.setattr(example, "STALE", 0)
        assert await cant_tell(verifier, token)
    assert issuer.asked == 2 + len(broken) + 1


async def cant_tell(verifier: Any, token: str) -> bool:
    with pytest.raises(HTTPException) as raised:
        await verifier.verify_token(token)
    return raised.value.status_code == 503


async def test_a_client_whose_issuer_is_away_is_not_told_that_its_token_is_no_good(
    tmp_path: Path, example: Any
) -> None:
    """Also at the start, and until the keys can be had; but what nobody has to be asked about is refused as ever."""
    async with authority() as issuer, trusting(tmp_path, example, issuer) as up:
        issuer.answer = lambda: PlainTextResponse("later", 503)
        body = envelope("tasks/get", {"taskId": UNKNOWN})
        for token in (issuer.token("ada"), issuer.token("ada", exp=ahead(LONG_AGO))):
            reply = await up.client.bearing(token).exchange(body)
            assert reply.status == 503
            fields = {name.lower(): value for name, value in reply.fields}
            assert fields["retry-after"] == "0"  # in earnest, it is that of PAUSE
            assert "www-authenticate" not in fields
        for token in ("none at all", issuer.token("ada", iss="https://evil.example")):
            assert (await up.client.bearing(token).exchange(body)).status == 401
        issuer.answer = None
        assert await is_unknown_to_get(up.client.bearing(issuer.token("ada")), UNKNOWN)


async def test_whoever_comes_while_keys_that_are_too_old_are_fetched_waits_for_the_new_ones(example: Any) -> None:
    async with authority() as issuer:
        verifier, token = verifying(example, issuer), issuer.token("ada")
        assert await verifier.verify_token(token) is not None
        verifier._issuers[issuer.issuer][1]._fetched = float("-inf")
        assert None not in await asyncio.gather(*(verifier.verify_token(token) for _ in range(5)))


async def test_the_log_says_why_tokens_are_refused_and_of_each_kind_once_a_minute(
    example: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with authority() as issuer:
        verifier = verifying(example, issuer)
        wrong = {
            "ExpiredSignatureError: Signature has expired": issuer.token("ada", exp=ahead(LONG_AGO)),
            "InvalidAudienceError: ": issuer.token("ada", aud="https://other.example"),
            f"InvalidIssuerError: 'https://id.example/' is none of {[issuer.issuer]}": issuer.token(
                "ada", iss="https://id.example/"
            ),
            "InvalidKeyError: https://id.example has no such key": issuer.signed(
                issuer.claims("ada"), issuer.keys[0], kid="x"
            ),
            "InvalidTokenError: the claim 'sub' names nobody": issuer.token(" "),
        }
        for _ in range(10):
            for token in wrong.values():
                assert await verifier.verify_token(token) is None
    lines = [record.getMessage() for record in caplog.records if record.name == "jwt_tokens"]
    for line, said in zip(lines, wrong, strict=True):
        assert line.startswith(f"a token was refused: {said}")
        assert len(line) < 400


async def test_while_keys_are_fetched_again_nobody_waits_who_names_one_that_is_known(
    example: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with authority() as issuer:
        verifier, token = verifying(example, issuer), issuer.token("ada")
        assert await verifier.verify_token(token) is not None
        monkeypatch.setattr(example, "FRESH", 0)
        keys = verifier._issuers[issuer.issuer][1]
        async with keys._lock:
            assert await verifier.verify_token(token) is not None


async def test_a_shared_secret_among_the_keys_is_none_of_them(example: Any) -> None:
    secret = "s" * 32
    async with authority() as issuer:
        shared = {"kty": "oct", "kid": "shared", "alg": "HS256", "k": "c3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3M"}
        issuer.answer = lambda: JSONResponse({"keys": [shared, *(key.published() for key in issuer.keys)]})
        token = jwt.encode(issuer.claims("ada"), secret, "HS256", headers={"kid": "shared"})
        assert jwt.decode(token, jwt.PyJWK(shared), audience=AUDIENCE)["sub"] == "ada"
        verifier = verifying(example, issuer)
        assert await verifier.verify_token(token) is None
        assert await verifier.verify_token(issuer.token("ada")) is not None


# -- tokens that are none ----------------------------------------------------------------------------------------------


def public(one: Authority) -> bytes:
    return one.keys[-1].private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def by_the_public_key(one: Authority) -> str:
    """What takes the published key for a shared secret. No library signs by such a one."""
    header, claims = {"alg": "HS256", "kid": one.keys[-1].id, "typ": "JWT"}, one.claims("ada")
    signed = unsigned(header, claims).removesuffix(".").encode()
    return unsigned(header, claims, hmac.digest(public(one), signed, "sha256"))


def without_signature(one: Authority, alg: str) -> str:
    return unsigned({"alg": alg, "kid": one.keys[-1].id}, one.claims("ada"))


def changed(one: Authority) -> str:
    """A good one of bob's, with ada's name in it."""
    head, _, signature = one.token("bob").split(".")
    return f"{head}.{one.token('ada').split('.')[1]}.{signature}"


def ahead(seconds: int) -> int:
    return int(time.time()) + seconds


LONG_AGO: Final = -60
"""Seconds; more than clocks may differ by."""

BAD: Final[dict[str, Callable[[Authority, Authority], str]]] = {
    "for another server": lambda one, _: one.token("ada", aud="https://other.example/mcp"),
    "for no server": lambda one, _: one.token("ada", aud=None),
    "expired": lambda one, _: one.token("ada", exp=ahead(LONG_AGO)),
    "that never expires": lambda one, _: one.token("ada", exp=None),
    "of tomorrow": lambda one, _: one.token("ada", nbf=ahead(86_400)),
    "without a subject": lambda one, _: one.token(None),
    "with a subject that is no text": lambda one, _: one.token("ada", sub=7),
    "with an empty subject": lambda one, _: one.token("", sub=""),
    "with a blank subject": lambda one, _: one.token(" "),
    "with an empty client": lambda one, _: one.token("ada", client_id=""),
    "with clients": lambda one, _: one.token("ada", client_id=["app"]),
    "without a client": lambda one, _: one.token("ada", client_id=None),
    "without an issuer": lambda one, _: one.token("ada", iss=None),
    "of an issuer that nobody trusts": lambda one, _: one.token("ada", iss="https://evil.example"),
    "of an issuer that is a list": lambda one, _: unsigned({"alg": "ES256", "kid": "x"}, {"iss": [one.issuer]}, b"x"),
    "by the key of another issuer": lambda one, other: one.token("ada", key=other.keys[-1]),
    "by the key of another issuer, under the name of one of its own": lambda one, other: one.signed(
        one.claims("ada"), other.keys[-1], kid=one.keys[-1].id
    ),
    "by a key that it brings along": lambda one, other: one.signed(
        one.claims("ada"), other.keys[-1], kid="mine", jwk=other.keys[-1].published(), jku=other.jwks
    ),
    "by a key without a name": lambda one, _: one.signed(one.claims("ada"), one.keys[-1], kid=""),
    "with a changed claim": lambda one, _: changed(one),
    "unsigned": lambda one, _: without_signature(one, "none"),
    "unsigned, in other letters": lambda one, _: without_signature(one, "nOnE"),
    "unsigned, of another algorithm": lambda one, _: without_signature(one, "ES256"),
    "signed by the public key": lambda one, _: by_the_public_key(one),
    "that is none": lambda _, __: "tsk_" + "a" * 32,
    "that nests too deep": lambda _, __: unsigned({"alg": "ES256"}, {}).split(".")[0] + "." + "W1tb" * 8_000 + ".",
}


@pytest.fixture
async def two_issuers() -> AsyncGenerator[tuple[Authority, Authority]]:
    async with authority() as one, authority("https://other.example") as other:
        yield one, other


async def test_a_bad_token_is_no_token(
    tmp_path: Path, example: Any, two_issuers: tuple[Authority, Authority], caplog: pytest.LogCaptureFixture
) -> None:
    one, other = two_issuers
    async with trusting(tmp_path, example, one, other) as up:
        ada = up.client.bearing(one.token("ada"))
        task_id = await ada.start("mine")
        body = envelope("tasks/get", {"taskId": task_id})
        none = await up.client.bearing(None).exchange(body)
        assert none.status == 401
        for what, make in BAD.items():
            bad = up.client.bearing(make(one, other))
            for request in (body, envelope("tasks/cancel", {"taskId": task_id}), envelope("tools/call")):
                reply = await bad.exchange(request)
                assert (reply.status, reply.raw, reply.fields) == (none.status, none.raw, none.fields), what
        assert await owner_of(ada, task_id) == ["", '["https://id.example","app","ada"]']
        assert len(dict(up.dump())["task"]) == 1
    assert "Traceback" not in caplog.text


async def test_clocks_may_differ_by_a_little_and_no_more(example: Any) -> None:
    async with authority() as issuer:
        verifier = verifying(example, issuer)
        for claim in ("exp", "nbf", "iat"):
            away = example.LEEWAY if claim != "exp" else -example.LEEWAY
            near, far = ({**issuer.claims("ada"), claim: ahead(seconds)} for seconds in (away // 2, away * 3))
            assert await verifier.verify_token(issuer.signed(near, issuer.keys[0])) is not None, claim
            assert await verifier.verify_token(issuer.signed(far, issuer.keys[0])) is None, claim


async def test_what_a_token_says_of_its_user_is_what_the_server_hears(example: Any) -> None:
    async with authority() as issuer:
        expires = ahead(100)
        token = issuer.token("ada", exp=expires, scope="read write", org="acme")
        access = await verifying(example, issuer).verify_token(token)
    assert (access.client_id, access.subject, access.scopes) == ("app", "ada", ["read", "write"])
    assert (access.expires_at, access.resource) == (expires + example.LEEWAY, AUDIENCE)
    assert (access.claims["iss"], access.claims["org"]) == (issuer.issuer, "acme")


async def test_an_issuer_may_name_the_client_in_a_claim_of_its_own(example: Any) -> None:
    async with authority() as issuer:
        verifier = example.SignedTokens([example.Issuer(issuer.issuer, issuer.jwks, client_claim="azp")], AUDIENCE)
        token = issuer.token("ada", client_id=None, azp="another")
        assert (await verifier.verify_token(token)).client_id == "another"
        assert await verifier.verify_token(issuer.token("ada")) is None


# -- whose task it is --------------------------------------------------------------------------------------------------


async def test_the_same_subject_of_another_issuer_is_somebody_else(
    tmp_path: Path, example: Any, two_issuers: tuple[Authority, Authority]
) -> None:
    async with trusting(tmp_path, example, *two_issuers) as up:
        hers, other = (up.client.bearing(each.token("ada")) for each in two_issuers)
        task_id = await hers.start("mine")
        assert await is_unknown(other, task_id)
        assert not await is_unknown_to_get(hers, task_id)


async def test_one_user_in_two_tenants_is_two_owners_and_so_are_two_users_in_one(tmp_path: Path, example: Any) -> None:
    async with AsyncExitStack() as stack:
        issuer = await stack.enter_async_context(authority())
        up = await stack.enter_async_context(trusting(tmp_path, example, issuer, tenant_claim="org"))

        def bearing(subject: str, **claims: Any) -> Client:
            return up.client.bearing(issuer.token(subject, **claims))

        clients = {
            ("acme", "ada"): bearing("ada", org="acme"),
            ("other", "ada"): bearing("ada", org="other"),
            ("acme", "bob"): bearing("bob", org="acme"),
            ("", "ada"): bearing("ada"),
        }
        tasks = {who: await client.start("mine") for who, client in clients.items()}
        for who, client in clients.items():
            seen = {whose for whose, task_id in tasks.items() if not await is_unknown_to_get(client, task_id)}
            assert seen == {who}
        for (tenant, subject), client in clients.items():
            principal = json.dumps([issuer.issuer, "app", subject], separators=(",", ":"))
            assert await owner_of(client, tasks[tenant, subject]) == [tenant, principal]


async def test_one_user_by_two_clients_is_two_owners(tmp_path: Path, example: Any) -> None:
    """What one client may do for a user, another one that the same user let in may not undo or read."""
    async with authority() as issuer, trusting(tmp_path, example, issuer) as up:
        app, cli = (up.client.bearing(issuer.token("ada", client_id=client)) for client in ("app", "cli"))
        task_id = await app.start("mine")
        assert await is_unknown(cli, task_id)
        assert await owner_of(app, task_id) == ["", '["https://id.example","app","ada"]']


async def test_the_example_that_identifies_users_makes_it_one(
    tmp_path: Path, example: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_user = loaded("shared_tasks", monkeypatch).by_user
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(authority())
        other = await stack.enter_async_context(authority("https://other.example"))
        up = await stack.enter_async_context(trusting(tmp_path, example, one, other, identify=by_user))

        def bearing(by: Authority, **claims: Any) -> Client:
            return up.client.bearing(by.signed(by.claims("ada", **{"org": "acme", **claims}), by.keys[0]))

        task_id = await bearing(one).start("mine")
        for stranger in (bearing(other), bearing(one, org="other"), bearing(one, sub="bob")):
            assert await is_unknown(stranger, task_id)
        for nobody in (bearing(one, org=name) for name in (None, "", " ", ["acme"], 5)):
            assert (await nobody.get(task_id)).code == -32600
        assert await owner_of(bearing(one, client_id="cli"), task_id) == ["acme", '["https://id.example", "ada"]']


# -- streams -----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def standing_still() -> AsyncGenerator[list[float]]:
    """For how many seconds the event loop, which is the server's as well, was kept from its work; each time."""
    gaps = [0.0]

    async def look() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            gaps.append(time.monotonic() - before - 0.01)

    looking = asyncio.create_task(look())
    try:
        yield gaps
    finally:
        looking.cancel()
        await asyncio.wait([looking])


async def test_a_stream_ends_with_the_token_that_it_was_asked_for_by(tmp_path: Path, example: Any) -> None:
    async with authority() as issuer, trusting(tmp_path, example, issuer) as up:
        lasting = up.client.bearing(issuer.token("ada"))
        task_id = await lasting.start("mine")
        await lasting.until(task_id, "input_required")
        brief = issuer.token("ada", exp=ahead(4 - example.LEEWAY))
        async with (
            standing_still() as gaps,
            listening(lasting, task_id) as stays,
            listening(up.client.bearing(brief), task_id) as ends,
        ):
            for stream in (stays, ends):
                assert await stream.begun() == [task_id]
                await stream.snapshot()
            assert await ends.ends() == []
            # A second is the grain of a token's time, and all of its last one is part of its life.
            late = jwt.decode(brief, options={"verify_signature": False})["exp"] + example.LEEWAY + 1
            assert time.time() < late + 1 + max(gaps)
            body = envelope("tasks/get", {"taskId": task_id})
            assert (await up.client.bearing(brief).exchange(body)).status == 401
            await lasting.update(task_id, {"form": FORM})
            assert (await stays.reaches())["status"] == "completed"
