"""Whose a resource is: by what the backends list, and by `addresses`, how those of one begin."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from mcp.server.mcpserver import MCPServer

from perdure.domain.errors import ConfigurationError
from perdure.gateway.backends import Asker
from perdure.gateway.config import parse
from perdure.wire.identity import ANONYMOUS
from tests.gateway.support import Front, configured, fronting
from tests.wire.support import serving


def shelf(name: str) -> MCPServer:
    """A server with a book that the other one has too, and says whose it is."""
    mcp = MCPServer(name)

    @mcp.resource("book://emma")
    def emma() -> str:
        return name

    return mcp


@asynccontextmanager
async def two(at_the_end: str = "") -> AsyncGenerator[Front]:
    """Both behind a gateway; `at_the_end` is said of the second."""
    async with serving(shelf("first")) as (_, first), serving(shelf("second")) as (_, second):
        config = configured({"a": first, "b": second}, at_the_end=at_the_end)
        async with fronting({}, config=config) as front:
            yield front


async def test_of_two_that_claim_an_address_the_one_counts_that_says_more_of_it() -> None:
    for first, second, whose in (("book://", "book://emma", "second"), ("book://em", "book://", "first")):
        async with serving(shelf("first")) as (_, one), serving(shelf("second")) as (_, two):
            config = parse(
                f'[gateway]\nstore = "memory"\n[backends.a]\nurl = "{one}"\naddresses = ["{first}"]\n'
                f'[backends.b]\nurl = "{two}"\naddresses = ["{second}"]\n'
            )
            async with fronting({}, config=config) as front:
                assert await read(front, "book://emma") == whose


async def read(front: Front, uri: str) -> str:
    reply = await front.client.request("resources/read", {"uri": uri}, extra={"mcp-name": uri})
    return reply.result["contents"][0]["text"]


async def test_a_resource_of_two_backends_is_refused_at_the_start_with_what_to_do() -> None:
    async with two() as front:
        with pytest.raises(ConfigurationError, match="both have the resource 'book://emma': say in `addresses`"):
            await front.gateway.catalog.check(Asker(ANONYMOUS))


async def test_addresses_say_whose_a_resource_is_and_it_is_listed_once() -> None:
    async with two('addresses = ["book://"]') as front:
        await front.gateway.catalog.check(Asker(ANONYMOUS))
        listed = (await front.client.request("resources/list")).result["resources"]
        assert [each["uri"] for each in listed] == ["book://emma"]
        assert await read(front, "book://emma") == "second"
