"""That a backend's lists have changed is noticed though no client listens."""

import asyncio
from typing import Any

from mcp.server.caching import CacheHint
from mcp.server.mcpserver import Context, MCPServer

from tests.gateway.raw_backend import Asked, event, liar, response, result, stream
from tests.gateway.support import fronting
from tests.support import eventually
from tests.wire.support import serving


async def test_a_backend_that_lies_to_who_watches_it_takes_nothing_from_others() -> None:
    listened = 0

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        nonlocal listened
        if asked.message["method"] == "server/discover":
            capabilities: Any = {"tools": {"listChanged": True}}
            writer.write(response(result(asked, capabilities=capabilities)))
        else:
            listened += 1
            lie = {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": ["tools"]}
            writer.write(stream(event(lie), end=False))
        await writer.drain()

    mcp = MCPServer("good")
    mcp.add_tool(lambda: "done", name="do")
    async with liar(answer) as lying, serving(mcp) as (_, url), fronting({"bad": lying.url, "good": url}) as front:
        await eventually(lambda: listened > 1, "it was not listened to again")
        assert (await front.client.call("good_do", {})).text == "done"


async def test_a_list_that_is_kept_is_asked_for_anew_once_its_backend_says_that_it_changed() -> None:
    """By its ttl it would be good for an hour."""
    mcp = MCPServer("changing", cache_hints={"tools/list": CacheHint(ttl_ms=3_600_000, scope="public")})

    @mcp.tool()
    async def say(ctx: Context) -> str:
        await ctx.notify_tools_changed()
        return "said"

    async with serving(mcp) as (_, url), fronting({"it": url}) as front:

        async def names() -> list[str]:
            listed = await front.client.request("tools/list")
            return [tool["name"] for tool in listed.result["tools"]]

        assert await names() == ["it_say"]
        for grown in ("one", "two"):  # that the gateway begins to listen is enough for the first
            mcp.add_tool(lambda: "new", name=grown)

            async def is_seen(name: str = f"it_{grown}") -> bool:
                await front.client.call("it_say", {})
                return name in await names()

            await eventually(is_seen, "the new tool was not seen")


async def test_a_list_from_before_it_was_watched_is_asked_for_anew() -> None:
    """It may have changed in between, and nobody would have said so."""
    tools, watching = ["old"], asyncio.Event()

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        match asked.message["method"]:
            case "server/discover":
                capabilities: Any = {"tools": {"listChanged": True}}
                writer.write(response(result(asked, ttlMs=60_000, cacheScope="public", capabilities=capabilities)))
            case "tools/list":
                listed: Any = [{"name": name, "inputSchema": {"type": "object"}} for name in tools]
                writer.write(response(result(asked, ttlMs=60_000, cacheScope="public", tools=listed)))
            case _:
                await watching.wait()
                params: Any = {"notifications": asked.message["params"]["notifications"]}
                begun = {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params}
                writer.write(stream(event(begun), end=False))
                await writer.drain()
                await asyncio.Event().wait()
        await writer.drain()

    async with liar(answer) as up, fronting({"it": up.url}) as front:

        async def names() -> list[str]:
            listed = await front.client.request("tools/list")
            return [tool["name"] for tool in listed.result["tools"]]

        assert await names() == ["it_old"]
        tools.append("new")
        assert await names() == ["it_old"]
        watching.set()

        async def is_seen() -> bool:
            return await names() == ["it_old", "it_new"]

        await eventually(is_seen, "the new tool was not seen")
