"""Which calls whose answer nobody heard are made again: those of tools that say, each, that they honour keys."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from perdure.client import Tasks, Unsure, server_of
from tests.client.spy import Spy, at_first
from tests.client.support import connected, text
from tests.client.test_resuming import lost, spied_on
from tests.support import PATIENCE
from tests.wire.support import stage
from tests.wire.tools import Tools

CALL, LIST = "tools/call", "tools/list"


@pytest.mark.parametrize("how", ["started", "resumed", "all"])
async def test_an_ordinary_tool_of_a_server_that_honours_keys_is_not_run_twice(
    tmp_path: Path, tools: Tools, how: str
) -> None:
    spy, tasks, ran = Spy(change={CALL: lost(1)}), Tasks(), [0]
    async with stage(tmp_path, tools.declare, server={"middleware": [spy]}) as up:

        @up.mcp.tool()
        def charge(amount: int) -> str:
            ran[0] += 1
            return "charged"

        async with connected(up.client.url, tasks) as client:
            if how == "started":
                with pytest.raises(Unsure, match="does not honour keys"):
                    await tasks.start(client, "charge", {"amount": 5})
                assert ran == [1]
                return
            # As of a process that died while it was called.
            tasks.journal.let_go(tasks.journal.intend(server_of(client), "charge", "mine", {"amount": 5})[0])
            if how == "resumed":
                with pytest.raises(Unsure, match="does not honour keys"):
                    await tasks.resume(client, "mine")
            else:
                assert [each.record.key for each in (await tasks.resume_all(client)).unsure] == ["mine"]
    assert ran == [0]


def without_tools(answer: dict[str, Any]) -> dict[str, Any]:
    return {**answer, "tools": []}


def endless(answer: dict[str, Any]) -> dict[str, Any]:
    return {**answer, "tools": [], "nextCursor": "more"}


@pytest.mark.parametrize(("change", "pages"), [(without_tools, 1), (endless, 100)])
async def test_a_tool_that_is_in_no_page_of_the_listing_is_not_called_again(
    tmp_path: Path, tools: Tools, change: Callable[[dict[str, Any]], dict[str, Any]], pages: int
) -> None:
    spy, tasks = Spy(change={CALL: lost(1), LIST: change}), Tasks()
    async with spied_on(tmp_path, tools, spy) as up, connected(up.client.url, tasks) as client:
        before = spy.came[LIST]
        with pytest.raises(Unsure, match="no such tool"):
            await tasks.start(client, "hello", {"name": "you"})
        assert (spy.came[CALL], spy.came[LIST] - before) == (1, pages)


async def test_the_listing_is_asked_for_only_where_nobody_heard_and_until_the_server_is_back(
    tmp_path: Path, tools: Tools
) -> None:
    spy, tasks = Spy(), Tasks()
    async with spied_on(tmp_path, tools, spy) as up, connected(up.client.url, tasks) as client:
        before = spy.came[LIST]
        await tasks.start(client, "hello", {"name": "you"})
        assert spy.came[LIST] == before
        spy.change[CALL] = lost(1)
        spy.refuse[LIST] = at_first(1, -32001, "timed out")
        handle = await tasks.start(client, "hello", {"name": "you"})
        assert text(await handle.result(PATIENCE)) == "Hello, you!"
        assert spy.came[LIST] == before + 2
        spy.change[CALL] = lost(1)
        spy.refuse[LIST] = lambda _: MCPError(-32601, "no list")
        with pytest.raises(Unsure, match="no list"):
            await tasks.start(client, "hello", {"name": "you"})


@pytest.mark.parametrize("code", [-32000, -32001, -32050])
async def test_an_error_that_a_tool_raises_is_an_answer_whatever_its_code(
    tmp_path: Path, tools: Tools, code: int
) -> None:
    """-32000 is also what the SDK says of a lost connection."""
    spy, tasks, ran = Spy(), Tasks(), [0]
    async with stage(tmp_path, tools.declare, server={"middleware": [spy]}) as up:

        @up.mcp.tool()
        def fail() -> str:
            ran[0] += 1
            raise MCPError(code, "my own failure")

        async with connected(up.client.url, tasks) as client:
            with pytest.raises(MCPError, match="my own failure"):
                await tasks.start(client, "fail")
    assert (ran, tasks.journal.records()) == ([1], [])
