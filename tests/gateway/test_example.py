"""`examples/gateway.toml`, with the servers that it names, and tokens of a real authorization server."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from perdure.gateway.config import parse
from perdure.ops.gateway import application, assemble
from perdure.ops.stores import open_routes
from tests.wire.authority import AUDIENCE, Authority, authority
from tests.wire.envelopes import envelope
from tests.wire.support import ROOT, Client, hosting, serving

EXAMPLES = ROOT / "examples"


@pytest.fixture
async def issuer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Authority]:
    """An authorization server, and what the examples expect of their surroundings."""
    async with authority("https://login.example.com") as made:
        monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
        monkeypatch.delitem(sys.modules, "jwt_tokens", raising=False)
        monkeypatch.chdir(tmp_path)
        for name, value in {
            "ISSUER": made.issuer,
            "JWKS": made.jwks,
            "AUDIENCE": AUDIENCE,
            "SUMS_SECRET": "0123456789abcdef" * 2,
        }.items():
            monkeypatch.setenv(name, value)
        yield made


def server(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.mcp


@pytest.fixture
async def client(issuer: Authority) -> AsyncGenerator[Client]:
    """A client without a token of the gateway that the file describes. Only the ports are others."""
    text = (EXAMPLES / "gateway.toml").read_text("utf-8")
    async with serving(server("behind")) as (_, behind), serving(server("report_server")) as (_, reports):
        for said, url in (("http://127.0.0.1:8001/mcp", behind), ("http://127.0.0.1:8002/mcp", reports)):
            assert said in text
            text = text.replace(said, url)
        config = parse(text, "gateway.toml")
        routes = open_routes(config.store)
        async with hosting(application(config, assemble(config, routes), routes)) as (http, url):
            yield Client(http, f"{url}/mcp")


async def test_the_example_serves_the_tools_of_both_to_who_has_a_token(issuer: Authority, client: Client) -> None:
    assert (await client.exchange(envelope("tools/list"))).status == 401
    ada = client.bearing(issuer.token("ada", org="acme"))
    tools = (await ada.request("tools/list")).result["tools"]
    assert [tool["name"] for tool in tools] == ["sums_sum_of_squares", "write_report"]


async def test_the_examples_task_is_its_owners_by_the_gateways_word_too(issuer: Authority, client: Client) -> None:
    ada, eve = (client.bearing(issuer.token(name, org="acme")) for name in ("ada", "eve"))
    task_id = await ada.start("sums_sum_of_squares", {"upto": 3})
    assert (await ada.until(task_id))["result"]["structuredContent"] == {"result": 14}
    assert (await eve.get(task_id)).code == -32602
    asked = await ada.until(await ada.start("write_report", {"size": "small"}), "input_required")
    assert len(asked["inputRequests"]) == 1


async def test_the_example_behind_asks_for_the_gateways_word_where_there_is_a_task_and_nowhere_else(
    issuer: Authority,
) -> None:
    """So nobody but the gateway may reach such a server."""
    async with serving(server("behind")) as (http, url):
        direct = Client(http, url)
        assert len((await direct.request("tools/list")).result["tools"]) == 1
        assert (await direct.call("sum_of_squares", {"upto": 3})).code == -32600
        assert (await direct.get("tsk_" + "a" * 32)).code == -32600
