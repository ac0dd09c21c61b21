"""The header that says who asks, from the gateway's end to a server of ours behind it."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from mcp.server.auth.provider import AccessToken

from perdure import Owner, Tasks
from perdure.domain.errors import ConfigurationError
from perdure.domain.limits import MAX_PRINCIPAL, MAX_TENANT
from perdure.gateway.identity import HEADER, Key, SignedHeader, signed_identity
from perdure.gateway.signing import Unverified, verified
from tests.wire.authority import unsigned
from tests.wire.envelopes import envelope, headers
from tests.wire.support import stage

NOW = 1_800_000_000
ADA = Owner("acme", json.dumps(["https://id.example", "app", "ada"], separators=(",", ":")))
TOKEN = AccessToken(
    token="t", client_id="app", scopes=[], subject="ada", claims={"iss": "https://id.example", "aud": "gateway"}
)


def pair(id: str) -> tuple[Key, Key]:
    """Both halves of an Ed25519 pair."""
    made = Ed25519PrivateKey.generate()
    private = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = made.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return Key.private(id, private), Key.public(id, public)


SECRET = Key.shared("s1", b"x" * 32)
OTHER = Key.shared("s2", b"y" * 32)
PRIVATE, PUBLIC = pair("p1")


async def signed(
    owner: Owner = ADA, token: AccessToken | None = TOKEN, *, audience: str = "b", issuer: str = "gw", **options: Any
) -> str:
    options = {"keys": [SECRET], "now": lambda: NOW, **options}
    return (await SignedHeader(audience, issuer=issuer, **options).headers(owner, token))[HEADER]


def read(text: str, *keys: Key, now: float = NOW) -> Mapping[str, Any]:
    return verified(text, audience="b", issuer="gw", keys={key.id: key for key in keys or (SECRET,)}, now=now)


def forged(claims: Mapping[str, Any] | None = None, key: Key = SECRET, **header: Any) -> str:
    """A good one, but for what is given; None leaves a claim out."""
    good: dict[str, Any] = {"iss": "gw", "aud": "b", "sub": "p", "tenant": "", "iat": NOW, "exp": NOW + 60}
    merged = {name: value for name, value in (good | dict(claims or {})).items() if value is not None}
    head = {"kid": key.id, "typ": "perdure-identity+jwt", **header}
    return jwt.encode(merged, cast("Any", key.material), key.algorithm, headers=head)


async def test_it_says_whose_request_it_is_and_who_came_with_it() -> None:
    claims = read(await signed())
    assert (claims["tenant"], claims["sub"]) == (ADA.tenant, ADA.principal)
    assert claims["client"] == {"issuer": "https://id.example", "client": "app", "subject": "ada"}
    assert claims["exp"] - claims["iat"] == 60


async def test_without_a_token_it_says_whose_request_it_is_all_the_same() -> None:
    claims = read(await signed(Owner("", "anonymous"), None))
    assert (claims["tenant"], claims["sub"]) == ("", "anonymous")
    assert "client" not in claims


async def test_a_backend_that_has_the_public_half_can_verify_and_not_sign() -> None:
    assert read(await signed(keys=[PRIVATE]), PUBLIC)["sub"] == ADA.principal
    with pytest.raises(ConfigurationError):
        SignedHeader("b", issuer="gw", keys=[PUBLIC])


async def test_keys_are_changed_by_giving_the_new_one_to_the_backends_first() -> None:
    old, new = await signed(keys=[SECRET]), await signed(keys=[PRIVATE, SECRET])
    assert read(old, SECRET, PUBLIC)["sub"] == read(new, SECRET, PUBLIC)["sub"]
    with pytest.raises(Unverified, match="not known"):
        read(old, PUBLIC)


async def test_the_longest_names_there_may_be_go_through() -> None:
    owner = Owner("\N{SNOWMAN}" * (MAX_TENANT // 3), "\N{SNOWMAN}" * (MAX_PRINCIPAL // 3))
    claims = read(await signed(owner, TOKEN.model_copy(update={"subject": "\N{SNOWMAN}" * 400})))
    assert (claims["tenant"], claims["sub"]) == (owner.tenant, owner.principal)


FORGED: dict[str, str] = {
    "another backend": forged({"aud": "c"}),
    "several backends": forged({"aud": ["b", "c"]}),
    "another gateway": forged({"iss": "other"}),
    "another key": forged(key=OTHER),
    "another key by the same name": forged(key=Key.shared("s1", b"z" * 32)),
    "no key's name": forged(kid=""),
    "another type": forged(typ="at+jwt"),
    "expired": forged({"iat": NOW - 80, "exp": NOW - 20}),
    "of a time to come": forged({"iat": NOW + 20, "exp": NOW + 80}),
    "good for a year": forged({"exp": NOW + 31_536_000}),
    "no end": forged({"exp": None}),
    "an end that is none": forged({"exp": 1e400}),
    "no tenant": forged({"tenant": None}),
    "a tenant that is none": forged({"tenant": 7}),
    "nobody": forged({"sub": None}),
    "a public key as a secret": forged(key=Key("p1", "HS256", b"public keys are known to everybody")),
    "unsigned": unsigned({"alg": "none", "kid": "s1", "typ": "perdure-identity+jwt"}, {"sub": "p"}),
    "nonsense": "a.b.c",
    "nothing": "",
    "too long": "a" * 20_000,
    "nested": unsigned({"kid": [[[[]]]]}, {}),
}


@pytest.mark.parametrize("what", FORGED)
def test_what_is_not_good_is_not_taken(what: str) -> None:
    with pytest.raises(Unverified):
        read(FORGED[what], SECRET, PUBLIC)


def test_what_is_good_is_good_until_it_expires_and_clocks_may_differ_a_little() -> None:
    for now in (NOW - 10, NOW, NOW + 69):
        assert read(forged(), now=now)["sub"] == "p"
    for now in (NOW - 11, NOW + 70):
        with pytest.raises(Unverified):
            read(forged(), now=now)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Key.shared("k", b"short"),
        lambda: Key.private("k", b"no PEM"),
        lambda: Key.public("k", b""),
        lambda: SignedHeader("b", issuer="gw", keys=[]),
        lambda: SignedHeader("b", issuer="gw", keys=[SECRET], life=3_600),
        lambda: signed_identity(audience="b", issuer="gw", keys=[]),
        lambda: signed_identity(audience="b", issuer="gw", keys=[SECRET, Key.shared("s1", b"z" * 32)]),
    ],
)
def test_what_can_not_work_is_refused_at_the_start(make: Any) -> None:
    with pytest.raises(ConfigurationError):
        make()


def test_a_key_does_not_show_its_secret() -> None:
    assert "xxx" not in repr(SECRET)


def declare(tasks: Tasks) -> None:
    @tasks.tool(ttl="1d")
    def hello() -> str:
        return "hello"


async def test_a_server_behind_the_gateway_knows_its_owners_by_the_same_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    identify = signed_identity(audience="b", issuer="gw", keys=[PUBLIC])
    # The clock is the real one here: the server's is.
    passing = SignedHeader("b", issuer="gw", keys=[PRIVATE])
    async with stage(tmp_path, declare, identify=identify) as scene:
        ada, bob = [dict(await passing.headers(owner, None)) for owner in (ADA, Owner("acme", "bob"))]
        task_id = await scene.client.start("hello", extra=ada)
        await scene.client.until(task_id, extra=ada)
        assert (await scene.client.get(task_id, extra=bob)).error["message"] == "Task not found"
        for wrong in (
            {},
            {HEADER: "nonsense"},
            {HEADER: forged({"iat": int(time.time()), "exp": int(time.time()) + 60})},
        ):
            assert (await scene.client.get(task_id, extra=wrong)).code == -32600
        body = envelope("tasks/get", {"taskId": task_id})
        fields = [*headers(body).items(), *ada.items(), *bob.items()]
        assert (await scene.client.post(json.dumps(body).encode(), fields)).code == -32600
        assert any(ADA.principal in row for _, rows in scene.dump() for row in rows)
    assert "a signed identity was refused: there is none" in caplog.text
