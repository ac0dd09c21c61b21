"""`perdure gateway`: what it refuses before it opens a port, and what is at its address beside /mcp."""

import asyncio
import os
import re
import sqlite3
import time
from collections.abc import Collection, Mapping
from contextlib import closing
from pathlib import Path

import jwt
import pytest
from click.testing import CliRunner
from mcp.server.mcpserver import MCPServer

from perdure.domain import ids
from perdure.domain.errors import ConfigurationError, StoreUnavailable
from perdure.domain.model import Owner
from perdure.domain.routing import Route
from perdure.gateway.backends import Naming
from perdure.gateway.config import BackendConfig, parse
from perdure.gateway.config_identity import ExchangeConfig, ForwardConfig, KeyConfig, SecretPlace, SignedConfig
from perdure.gateway.identity import HEADER, Anonymous, ForwardToken, Key, SignedHeader, TokenExchange
from perdure.gateway.signing import verified
from perdure.ops import stores
from perdure.ops.cli import main
from perdure.ops.gateway import application, assemble
from perdure.ops.gateway_identity import passing_of
from perdure.store.memory import MemoryRoutes
from perdure.wire.identity import ANONYMOUS
from tests.gateway.support import fronting
from tests.wire.support import ROOT, hosting, serving

PAGE = (ROOT / "docs" / "howto" / "gateway.md").read_text("utf-8")

SMALLEST = '[gateway]\nstore = "sqlite:///routes.db"\n[backends.gone]\nurl = "http://127.0.0.1:9/mcp"\n'


def refusal(folder: Path, text: str, *options: str) -> str:
    file = folder / "gateway.toml"
    file.write_text(text)
    done = CliRunner().invoke(main, ["gateway", str(file), *options], standalone_mode=False)
    assert isinstance(done.exception, SystemExit), done.exception
    return str(done.exception)


def test_a_file_with_errors_is_refused_with_all_of_them(tmp_path: Path) -> None:
    said = refusal(tmp_path, '[gateway]\nwrong = 1\n[backends.a]\nurl = "ftp://it"\n')
    assert said.startswith("perdure: ")
    assert [line.strip().partition(":")[0] for line in said.splitlines()[1:]] == [
        "gateway.store",
        "backends.a.url",
        "gateway.wrong",
    ]


UNCALLABLE = ["http://a..b/", "http://" + "a" * 70, "http://it:99999/", "http://it:0/", "http://u:SECRET@[h/"]


@pytest.mark.parametrize("url", [*UNCALLABLE, "ftp://u:SECRET@it/", "socks5://it", "it"])
def test_an_address_that_can_not_be_called_is_refused_in_a_line_that_does_not_repeat_it(
    tmp_path: Path, url: str
) -> None:
    for text in (
        SMALLEST.replace("http://127.0.0.1:9/mcp", url),
        f'{SMALLEST}proxy = "{url}"\n',
        f'{SMALLEST}identity = {{ kind = "exchange", endpoint = "{url}", client_id = "g", audience = "a", '
        f'client_secret_file = "{__file__}" }}\n[auth]\nverifier = "a:b"\nissuer = "https://it"\nresource = "https://it"\n',
        f'{SMALLEST}[auth]\nverifier = "a:b"\nissuer = "{url}"\nresource = "https://it"\n',
        f'{SMALLEST}[auth]\nverifier = "a:b"\nissuer = "https://it"\nresource = "{url}"\n',
    ):
        said = refusal(tmp_path, text)
        assert said.startswith("perdure: ")
        assert "http" in said
        assert "SECRET" not in said


@pytest.mark.parametrize("secret", [b"\xff\xfe", b"\xed\xa0\x80"], ids=str)
def test_a_client_secret_that_is_no_text_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secret: bytes
) -> None:
    (tmp_path / "secret").write_bytes(secret)
    monkeypatch.setitem(os.environ, "GATEWAY_SECRET", os.fsdecode(secret))
    for place in (SecretPlace(None, str(tmp_path / "secret")), SecretPlace("GATEWAY_SECRET", None)):
        exchange = ExchangeConfig("https://as/token", "g", place, "a", None, None)
        config = BackendConfig("it", "http://127.0.0.1:9/mcp", Naming(), Naming(), identity=exchange)
        with pytest.raises(ConfigurationError, match="no text"):
            passing_of(config, "front")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["gateway", str(tmp_path / "none.toml")], standalone_mode=False)
    assert isinstance(done.exception, SystemExit)
    assert "can't be read" in str(done.exception)


def test_without_authentication_it_listens_on_this_machine_only(tmp_path: Path) -> None:
    assert "has no authentication" in refusal(tmp_path, SMALLEST, "--host", "0.0.0.0")


def test_a_store_that_there_is_not_is_refused(tmp_path: Path) -> None:
    assert "names no store" in refusal(tmp_path, SMALLEST, "--store", "mysql://it")


def test_a_store_on_the_command_line_is_enough(tmp_path: Path) -> None:
    said = refusal(tmp_path, SMALLEST.replace('store = "sqlite:///routes.db"', ""), "--store", "mysql://it")
    assert "'mysql://it' names no store" in said


def test_a_verifier_that_can_not_be_had_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    auth = '[auth]\nverifier = "nowhere:it"\nissuer = "https://id.example"\nresource = "https://me.example/mcp"\n'
    assert "auth.verifier: nowhere:it can't be had: ModuleNotFoundError" in refusal(tmp_path, SMALLEST + auth)
    auth = auth.replace("nowhere:it", "pathlib:Path")
    assert "auth.verifier: pathlib:Path has no verify_token" in refusal(tmp_path, SMALLEST + auth)


def test_a_backend_that_can_not_be_called_is_refused(tmp_path: Path) -> None:
    assert "perdure: " in refusal(tmp_path, SMALLEST.replace("127.0.0.1:9", "user:secret@127.0.0.1:9"))


async def test_two_backends_with_one_name_are_refused_before_the_port_opens(tmp_path: Path) -> None:
    mcp = MCPServer("one")
    mcp.add_tool(lambda: "done", name="do")
    store = f"sqlite:///{tmp_path / 'routes.db'}"
    async with serving(mcp) as (_, one), serving(mcp) as (_, two):
        backends = "".join(f'[backends.{name}]\nurl = "{url}"\nprefix = ""\n' for name, url in (("a", one), ("b", two)))
        said = await asyncio.to_thread(refusal, tmp_path, f'[gateway]\nstore = "{store}"\n{backends}')
    assert said == "perdure: the backends a and b both have the tool 'do': give one of them a prefix, or map the names"


async def test_metrics_are_there_if_they_are_asked_for_and_tell_of_each_backend() -> None:
    mcp = MCPServer("one")
    mcp.add_tool(lambda: "done", name="do")
    async with serving(mcp) as (_, url):
        async with fronting({"one": url}, "metrics = true") as front:
            await front.client.call("one_do", {})
            await front.client.call("nobody", {})
            said = (await front.http.get(front.url.replace("/mcp", "/metrics"))).text
        async with fronting({"one": url}) as front:
            assert (await front.http.get(front.url.replace("/mcp", "/metrics"))).status_code == 404
    assert 'perdure_gateway_requests_total{backend="one",method="tools/call",outcome="ok"} 1' in said
    assert 'perdure_gateway_requests_total{backend="none",method="tools/call",outcome="error"} 1' in said
    assert 'perdure_gateway_request_seconds_count{backend="one",method="tools/call"} 1' in said
    assert 'perdure_gateway_backend_breaker{backend="one",position="closed"} 1' in said


async def test_the_question_of_the_page_leads_from_a_clients_id_to_the_backends(tmp_path: Path) -> None:
    file = tmp_path / "routes.db"
    routes = stores.open_routes(f"sqlite:///{file}")
    await routes.open()
    laid = await routes.lay(ANONYMOUS, "one", "theirs", None, ids.mint(os.urandom))
    await routes.lay(ANONYMOUS, "one", "another", None, ids.mint(os.urandom))
    await routes.close()
    question = re.search(r"```sql\n(SELECT .*);", PAGE)
    assert question is not None
    with closing(sqlite3.connect(file)) as db:
        asked = question[1].replace("tsk_35d5om", laid.id[:14])
        assert db.execute(asked).fetchall() == [("one", "theirs")]


async def test_its_health_is_that_of_the_table_of_routes() -> None:
    class Away(MemoryRoutes):
        async def find_many(self, owner: Owner, ids: Collection[str]) -> Mapping[str, Route]:
            raise StoreUnavailable

    config = parse(SMALLEST)
    for routes, status in ((MemoryRoutes(), 200), (Away(), 503)):
        app = application(config, assemble(config, routes), routes)
        async with hosting(app) as (http, url):
            assert (await http.get(f"{url}/health")).status_code == status


async def test_who_comes_with_a_slash_at_the_end_is_told_where_it_is() -> None:
    config, routes = parse(SMALLEST), MemoryRoutes()
    async with hosting(application(config, assemble(config, routes), routes)) as (http, url):
        answer = await http.post(f"{url}/mcp/", follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (307, f"{url}/mcp")


def backend(identity: SignedConfig | ExchangeConfig | ForwardConfig | None) -> BackendConfig:
    return BackendConfig("it", "http://127.0.0.1:9/mcp", Naming(), Naming(), identity=identity)


def test_each_way_of_passing_on_who_asks_gets_its_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "s" * 32)
    (tmp_path / "secret").write_text("s" * 32 + "\n")
    signed = SignedConfig("it", None, (KeyConfig("k", SecretPlace("SECRET", None), pair=False),))
    assert isinstance(passing_of(backend(signed), "front"), SignedHeader)
    place = SecretPlace(None, str(tmp_path / "secret"))
    exchange = ExchangeConfig("https://as.example/token", "me", place, "it", None, None)
    assert isinstance(passing_of(backend(exchange), "front"), TokenExchange)
    assert isinstance(passing_of(backend(ForwardConfig("it")), "front"), ForwardToken)
    assert isinstance(passing_of(backend(None), "front"), Anonymous)


@pytest.mark.parametrize("place", [SecretPlace("UNSET", None), SecretPlace(None, "/no/such/file")])
def test_a_secret_that_is_not_there_is_refused_by_its_place(place: SecretPlace) -> None:
    signed = SignedConfig("it", None, (KeyConfig("k", place, pair=False),))
    with pytest.raises(ConfigurationError, match=r"backends\.it\.identity: (UNSET is not set|/no/such/file)"):
        passing_of(backend(signed), "front")


def test_a_secret_that_is_too_short_is_refused_by_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "short")
    signed = SignedConfig("it", None, (KeyConfig("k", SecretPlace("SECRET", None), pair=False),))
    with pytest.raises(ConfigurationError, match=r"backends\.it\.identity: The key 'k' has less than 32 bytes"):
        passing_of(backend(signed), "front")


async def test_the_first_of_several_keys_signs_and_a_backend_that_has_them_all_takes_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A key is changed by giving the new one to the backends, and then putting it first here."""
    monkeypatch.setenv("OLD", "o" * 32)
    monkeypatch.setenv("NEW", "n" * 32)
    old, new = (KeyConfig(name.lower(), SecretPlace(name, None), pair=False) for name in ("OLD", "NEW"))
    known = {key.id: key for key in (Key.shared("old", b"o" * 32), Key.shared("new", b"n" * 32))}
    for order, first in (((old, new), "old"), ((new, old), "new")):
        passing = passing_of(backend(SignedConfig("it", None, order)), "front")
        header = (await passing.headers(ANONYMOUS, None))[HEADER]
        assert jwt.get_unverified_header(header)["kid"] == first
        verified(header, audience="it", issuer="front", keys=known, now=time.time())
