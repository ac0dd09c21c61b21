"""What several backends say of themselves, as one."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer

from perdure.gateway.merging import capabilities
from tests.gateway.support import configured, fronting
from tests.wire.support import serving


def test_capabilities_are_those_of_all_of_them() -> None:
    one: Any = {"capabilities": {"tools": {"listChanged": False}, "extensions": {"x": {"a": 1}}}}
    two: Any = {"capabilities": {"tools": {"listChanged": True}, "prompts": {}, "extensions": {"x": {"a": 2}}}}
    assert capabilities([one, two]) == {
        "tools": {"listChanged": True},
        "prompts": {},
        "extensions": {"x": {"a": 1}},
    }


def test_the_tasks_extension_is_offered_exactly_empty_if_one_has_it() -> None:
    name = "io.modelcontextprotocol/tasks"
    one: Any = {"capabilities": {"tools": {}, "extensions": {name: {"stray": True}}}}
    assert capabilities([one, {"capabilities": {}}])["extensions"] == {name: {}}
    assert one["capabilities"]["extensions"][name] == {"stray": True}


def test_keys_of_idempotency_are_offered_if_one_honours_them_since_each_tool_says_whether_it_does() -> None:
    keyed: Any = {"capabilities": {"tools": {}, "extensions": {"dev.perdure/idempotency": {}}}}
    tools: Any = {"capabilities": {"tools": {}}}
    assert capabilities([tools, keyed])["extensions"] == {"dev.perdure/idempotency": {}}
    assert "extensions" not in capabilities([tools])


@asynccontextmanager
async def told(*given: str | None, more: str = "", at_the_end: str = "") -> AsyncGenerator[Any]:
    """What a gateway before servers with these instructions says; each is called by its number."""
    async with serving(MCPServer("0", instructions=given[0])) as (_, first):
        urls = {"zero": first}
        if len(given) == 1:
            async with fronting({}, config=configured(urls, more, at_the_end=at_the_end)) as front:
                yield (await front.client.request("server/discover")).result
            return
        async with serving(MCPServer("1", instructions=given[1])) as (_, second):
            config = configured(urls | {"one": second}, more, at_the_end=at_the_end)
            async with fronting({}, config=config) as front:
                yield (await front.client.request("server/discover")).result


async def test_instructions_of_each_stand_under_its_name_with_what_its_tools_are_called_here() -> None:
    async with told("Read first.", "Call `find`.", at_the_end='tools = { search = "find", same = "same" }') as said:
        assert said["instructions"] == (
            "# zero\n\nThe names of its tools begin with zero_ here.\n\nRead first.\n\n"
            "# one\n\nTools have other names here: find is search.\n\nCall `find`."
        )


async def test_who_says_nothing_has_no_part_in_it() -> None:
    async with told(None, "Call `find`.", at_the_end='tools = { find = "find" }') as said:
        assert said["instructions"] == "# one\n\nCall `find`."
    async with told(None) as said:
        assert "instructions" not in said


async def test_those_of_an_only_backend_are_passed_on_as_they_are_if_its_names_are() -> None:
    async with told("Read first.", at_the_end='tools = { find = "find" }') as said:
        assert said["instructions"] == "Read first."


@pytest.mark.parametrize("given", [["Read first."], [None]])
async def test_what_the_configuration_says_stands_for_them_all(given: list[str | None]) -> None:
    async with told(*given, more='instructions = "All of it."') as said:
        assert said["instructions"] == "All of it."
