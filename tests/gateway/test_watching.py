"""That a backend's lists have changed is noticed though no client listens."""

from mcp.server.caching import CacheHint
from mcp.server.mcpserver import Context, MCPServer

from tests.gateway.support import fronting
from tests.support import eventually
from tests.wire.support import serving


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
        mcp.add_tool(lambda: "new", name="grown")
        assert await names() == ["it_say"]

        async def is_seen() -> bool:  # what is said before the gateway listens is not heard
            await front.client.call("it_say", {})
            return await names() == ["it_say", "it_grown"]

        await eventually(is_seen, "the new tool was not seen")
