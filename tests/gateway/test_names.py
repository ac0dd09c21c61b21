"""The lists of several backends under one address, and whose a name is."""

import pytest
from mcp.client import Client
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError

from perdure.domain.errors import ConfigurationError
from perdure.gateway.backends import Asker
from perdure.gateway.config import parse
from perdure.wire.identity import ANONYMOUS
from tests.gateway.support import configured, fronting
from tests.gateway.tokens import AUTH
from tests.wire.envelopes import envelope
from tests.wire.support import serving


def library() -> MCPServer:
    """A plain server of the SDK's: a tool, a prompt, a resource and a template of each."""
    mcp = MCPServer("library")

    @mcp.tool()
    def find(title: str) -> str:
        """Find a book."""
        return f"found {title}"

    @mcp.prompt()
    def review(title: str) -> str:
        return f"Review {title}"

    @mcp.resource("book://index")
    def index() -> str:
        return "all of them"

    @mcp.resource("book://{title}/text")
    def text(title: str) -> str:
        return f"text of {title}"

    return mcp


def archive() -> MCPServer:
    mcp = MCPServer("archive")

    @mcp.tool()
    def find(title: str) -> str:
        return f"archived {title}"

    @mcp.tool()
    def burn(title: str) -> str:
        return f"burnt {title}"

    @mcp.resource("file://ledger")
    def ledger() -> str:
        return "debts"

    return mcp


async def test_the_tools_of_all_backends_are_listed_under_their_prefixes_in_the_order_of_the_file() -> None:
    async with serving(library()) as (_, a), serving(archive()) as (_, b), fronting({"lib": a, "old": b}) as front:
        first = await front.client.request("tools/list")
        assert [tool["name"] for tool in first.result["tools"]] == ["lib_find", "old_find", "old_burn"]
        again = await front.client.request("tools/list")
        assert again.result == first.result


async def test_a_call_goes_to_the_backend_of_its_prefix_by_the_name_that_it_has_there() -> None:
    async with serving(library()) as (_, a), serving(archive()) as (_, b), fronting({"lib": a, "old": b}) as front:
        assert (await front.client.call("lib_find", {"title": "Emma"})).text == "found Emma"
        assert (await front.client.call("old_find", {"title": "Emma"})).text == "archived Emma"


async def test_a_name_that_nobody_has_is_refused_by_the_gateway() -> None:
    async with serving(library()) as (_, a), serving(archive()) as (_, b), fronting({"lib": a, "old": b}) as front:
        reply = await front.client.call("find", {"title": "Emma"})
        assert (reply.code, reply.error["message"]) == (-32602, "Unknown tool: find")


async def test_prompts_and_resources_are_found_as_well() -> None:
    async with serving(library()) as (_, a), serving(archive()) as (_, b), fronting({"lib": a, "old": b}) as front:
        client = front.client
        listed = await client.request("prompts/list")
        assert [prompt["name"] for prompt in listed.result["prompts"]] == ["lib_review"]
        named = {"extra": {"mcp-name": "lib_review"}}
        found = await client.request("prompts/get", {"name": "lib_review", "arguments": {"title": "Emma"}}, **named)
        assert found.result["messages"][0]["content"]["text"] == "Review Emma"
        for uri, text in (
            ("book://index", "all of them"),
            ("file://ledger", "debts"),
            ("book://Emma/text", "text of Emma"),
        ):
            read = await client.request("resources/read", {"uri": uri}, extra={"mcp-name": uri})
            assert read.result["contents"][0]["text"] == text
        unknown = await client.request("resources/read", {"uri": "no://where"}, extra={"mcp-name": "no://where"})
        assert unknown.error == {"code": -32602, "message": "Resource not found", "data": {"uri": "no://where"}}


async def test_a_long_list_comes_in_pages_and_a_cursor_of_another_list_is_refused() -> None:
    two = {"lib": "", "old": ""}
    async with (
        serving(library()) as (_, two["lib"]),
        serving(archive()) as (_, two["old"]),
        fronting(two, "page = 2") as front,
    ):
        first = (await front.client.request("tools/list")).result
        assert len(first["tools"]) == 2
        rest = (await front.client.request("tools/list", {"cursor": first["nextCursor"]})).result
        assert [tool["name"] for tool in rest["tools"]] == ["old_burn"]
        assert "nextCursor" not in rest
        assert (await front.client.request("tools/list", {"cursor": "bm9uZQ=="})).code == -32602


async def test_a_map_exposes_what_it_names_and_nothing_else() -> None:
    async with serving(archive()) as (_, url):
        config = parse(
            f'[gateway]\nstore = "memory"\n[backends.old]\nurl = "{url}"\n[backends.old.tools]\nsearch = "find"\n'
        )
        async with fronting({}, config=config) as front:
            listed = await front.client.request("tools/list")
            assert [tool["name"] for tool in listed.result["tools"]] == ["search"]
            assert (await front.client.call("search", {"title": "Emma"})).text == "archived Emma"
            assert (await front.client.call("burn", {"title": "Emma"})).code == -32602


async def test_two_backends_with_one_name_are_refused_at_the_start() -> None:
    async with serving(library()) as (_, a), serving(archive()) as (_, b):
        text = f'[gateway]\nstore = "memory"\n[backends.lib]\nurl = "{a}"\nprefix = ""\n'
        config = parse(text + f'[backends.old]\nurl = "{b}"\nprefix = ""\n')
        async with fronting({}, config=config) as front:
            with pytest.raises(ConfigurationError, match="lib and old both have the tool 'find'"):
                await front.gateway.catalog.check(Asker(ANONYMOUS))


async def test_a_name_of_the_file_that_its_backend_does_not_have_is_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(archive()) as (_, url):
        maps = 'tools = { search = "find", more = "fnid" }\nprompts = { ask = "question" }'
        text = f'[gateway]\nstore = "memory"\n[backends.old]\nurl = "{url}"\n{maps}\n'
        away = f'[backends.away]\nurl = "http://127.0.0.1:9/mcp"\n{maps.replace("search", "a").replace("more", "b")}\n'
        async with fronting({}, config=parse(text + away.replace("ask", "c"))) as front:
            await front.gateway.catalog.check(Asker(ANONYMOUS))
    assert [said for said in caplog.messages if "lists no" in said] == [
        "the backend old lists no tool 'fnid', so clients find no 'more'",
        "the backend old lists no prompt 'question', so clients find no 'ask'",
    ]


async def test_a_backend_that_is_away_has_one_line_a_minute_in_the_log_whoever_lists(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(library()) as (_, a), fronting({"lib": a, "gone": "http://127.0.0.1:9/mcp"}) as front:
        await front.gateway.catalog.check(Asker(ANONYMOUS))
        for _ in range(3):
            await front.client.request("tools/list")
    (said,) = [each for each in caplog.messages if "did not list" in each]
    assert said.startswith("the backend gone did not list its tools: The backend gone ")


async def test_a_backend_that_needs_a_token_is_not_missed_before_anybody_has_brought_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(library()) as (_, url):
        identity = 'identity = { kind = "forward", audience = "https://lib.example" }'
        async with fronting({}, config=configured({"lib": url}, AUTH, at_the_end=identity)) as front:
            await front.gateway.catalog.check(Asker(ANONYMOUS))
    assert caplog.messages == []


async def test_a_backend_that_is_down_takes_nothing_from_the_others() -> None:
    async with serving(library()) as (_, a), fronting({"lib": a, "gone": "http://127.0.0.1:9/mcp"}) as front:
        listed = (await front.client.request("tools/list")).result
        assert [tool["name"] for tool in listed["tools"]] == ["lib_find"]
        assert listed["ttlMs"] == 0
        assert (await front.client.call("lib_find", {"title": "Emma"})).text == "found Emma"
        body = envelope("tools/call", {"name": "gone_find", "arguments": {"title": "Emma"}})
        refused = await front.client.exchange(body)
        assert refused.status == 503
        data = refused.error["data"]
        assert (data["gateway"], data["backend"]) == (True, "gone")
        assert 0 < data["retryAfterMs"] <= 1_000


async def test_whoever_connects_while_no_backend_is_there_hears_why_nothing_can_be_done() -> None:
    """An error of `server/discover` would have the SDK's client try a handshake, and say why that failed."""
    async with fronting({"gone": "http://127.0.0.1:9/mcp"}) as front:
        said = (await front.client.request("server/discover")).result
        assert {"extensions", "tools", "prompts", "resources"} <= set(said["capabilities"])
        assert (said["ttlMs"], said["cacheScope"]) == (0, "private")
        async with Client(front.url) as client:
            with pytest.raises(MCPError, match=r"^The backend gone "):
                await client.list_tools()


async def test_what_all_of_them_can_do_is_said_by_the_gateway() -> None:
    async with serving(library()) as (_, a), serving(archive()) as (_, b), fronting({"lib": a, "old": b}) as front:
        said = (await front.client.request("server/discover")).result
        assert said["supportedVersions"] == ["2026-07-28"]
        assert {"tools", "prompts", "resources"} <= set(said["capabilities"])
        assert said["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "front"
