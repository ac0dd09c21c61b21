"""What a server has answered is handed over as it was sent: nothing that is done after it can lose it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import HEADER_MISMATCH

from perdure.client import AnswerRefused, Tasks
from tests.client.spy import Spy, always, at_first
from tests.client.support import connected, text
from tests.client.test_manners import UPDATE, served
from tests.client.test_repeating import CALL, LIST
from tests.support import PATIENCE
from tests.wire.support import stage
from tests.wire.tools import Tools


@asynccontextmanager
async def charging(tmp_path: Path, tools: Tools, spy: Spy, tasks: Tasks) -> AsyncGenerator[Client]:
    """A server with an ordinary tool, whose results have a structure."""
    async with stage(tmp_path, tools.declare, server={"middleware": [spy]}) as up:

        @up.mcp.tool()
        def charge(amount: int) -> dict[str, int]:
            tools.ran.append("charge")
            return {"charged": amount}

        async with connected(up.client.url, tasks) as client:
            yield client


@pytest.mark.parametrize("code", [-32000, -32601, -32603])
async def test_a_result_that_has_come_is_not_lost_to_a_listing_that_is_refused(
    tmp_path: Path, tools: Tools, code: int
) -> None:
    spy, tasks = Spy(refuse={LIST: always(code, "no listing")}), Tasks()
    async with charging(tmp_path, tools, spy, tasks) as client:
        handle = await tasks.start(client, "charge", {"amount": 5})
        assert (await handle.result()).structured_content == {"charged": 5}
    assert (tools.ran, tasks.journal.records(), spy.came[LIST]) == (["charge"], [], 0)


@pytest.mark.parametrize("is_listed", [True, False])
async def test_a_result_that_does_not_fit_its_schema_is_a_result_and_who_wants_to_know_asks_the_session(
    tmp_path: Path, tools: Tools, is_listed: bool
) -> None:
    spy, tasks = Spy(change={CALL: lambda answer: {**answer, "structuredContent": {"charged": "five"}}}), Tasks()
    async with charging(tmp_path, tools, spy, tasks) as client:
        if is_listed:
            await client.list_tools()
        result = await (await tasks.start(client, "charge", {"amount": 5})).result()
        assert result.structured_content == {"charged": "five"}
        with pytest.raises(RuntimeError, match="Invalid structured content"):
            await client.session.validate_tool_result("charge", result)
    assert tasks.journal.records() == []


def with_a_header(answer: dict[str, Any]) -> dict[str, Any]:
    """The listing, with the argument of `hello` mirrored in a header."""
    tools = [tool for tool in answer["tools"] if tool["name"] == "hello"]
    tools[0]["inputSchema"]["properties"]["name"]["x-mcp-header"] = "Name"
    return {**answer, "tools": tools}


@pytest.mark.parametrize("is_listed", [True, False])
async def test_a_call_has_the_headers_that_the_listing_asks_for_and_reads_it_where_they_are_missed(
    tmp_path: Path, tools: Tools, is_listed: bool
) -> None:
    spy, tasks = Spy(change={LIST: with_a_header}), Tasks()
    if not is_listed:
        spy.refuse[CALL] = at_first(1, HEADER_MISMATCH, "no such header")
    async with charging(tmp_path, tools, spy, tasks) as client:
        if is_listed:
            await client.list_tools()
        await tasks.start(client, "hello", {"name": "you"})
    calls = [one.headers for one in spy.asked if one.method == CALL]
    assert [each.get("mcp-param-name") for each in calls] == (["you"] if is_listed else [None, "you"])
    assert {each["mcp-name"] for each in calls} == {"hello"}
    assert spy.came[LIST] == 1


@pytest.mark.parametrize("is_taken", [True, False])
async def test_what_a_server_says_to_an_answer_is_not_lost_to_a_full_disk(
    tmp_path: Path, tools: Tools, is_taken: bool
) -> None:
    tasks = Tasks(tmp_path / "journal.db")
    db = vars(tasks.journal)["_db"]

    def full(_: dict[str, Any]) -> MCPError | None:
        db.execute("PRAGMA query_only = ON")
        return None if is_taken else MCPError(-32602, "not like that")

    async with served(tmp_path, tools, Spy(refuse={UPDATE: full}), tasks) as client:
        handle = await tasks.start(client, "ask")
        if is_taken:
            assert text(await handle.result(PATIENCE)) == "accept True"
        else:
            with pytest.raises(AnswerRefused, match="not like that"):
                await handle.result(PATIENCE)
    db.execute("PRAGMA query_only = OFF")
    tasks.journal.close()
