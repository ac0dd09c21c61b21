"""The programs of the page on the client do what it says: against the server of the first page, killed and all."""

import asyncio
import os
import signal
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

from tests.acceptance.support import REPORT_SERVER, running
from tests.copies import Copy, talking
from tests.support import PATIENCE

EXAMPLES: Final = Path(__file__).parents[2] / "examples"


def program(name: str, *options: str) -> AbstractAsyncContextManager[Copy]:
    return talking([sys.executable, EXAMPLES / f"{name}.py", *options])


async def said(process: Copy, until: bytes) -> bytes:
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        return await process.stdout.readuntil(until)


async def test_a_call_looks_as_if_there_were_no_task(tmp_path: Path) -> None:
    async with (
        running(REPORT_SERVER, tmp_path) as (server, _),
        program("calling", "--port", str(server.port)) as process,
        asyncio.timeout(PATIENCE),
    ):
        output, _ = await process.communicate()
    assert process.returncode == 0
    assert output.decode().splitlines() == [
        "Approve the generated report outline? Yes.",
        "{'size': 'large', 'approved': True}",
    ]


async def test_a_question_is_answered_by_hand(tmp_path: Path) -> None:
    async with running(REPORT_SERVER, tmp_path) as (server, client), asyncio.timeout(PATIENCE):
        async with program("by_hand", client.url) as process:
            output, _ = await process.communicate()
        assert output.decode().splitlines() == [
            "Approve the generated report outline?",
            "answered: approve_outline",
            "{'size': 'large', 'approved': True}",
        ]
        await server.kill()
        async with program("by_hand", client.url) as process:
            output, _ = await process.communicate()
        assert output == b"no connection: All connection attempts failed\n"


async def test_what_a_server_refuses_is_said_in_its_words(tmp_path: Path) -> None:
    """However deep it is in groups of errors."""
    env = {"REQUEST_STATE_KEY": "k" * 32, "TOKENS": "{}"}
    async with running(EXAMPLES / "secured.py", tmp_path, env=env) as (_, client), asyncio.timeout(PATIENCE):
        for url, why in ((client.url, "HTTP status 401: the server wants a token"), (f"{client.url}/no", "Not Found")):
            async with program("by_hand", url, "a-token") as process:
                output, _ = await process.communicate()
            assert output.decode().startswith(f"refused: {why}")


async def test_an_agent_that_is_killed_comes_back_to_its_report(tmp_path: Path) -> None:
    question = b"Approve the generated report outline? (y/n) "
    async with running(REPORT_SERVER, tmp_path) as (server, _):
        options = ("--port", str(server.port), "--journal", str(tmp_path / "agent.db"))
        async with program("agent", *options) as first:
            begun = await said(first, b"\n")
            os.kill(first.pid, signal.SIGKILL)
            await first.wait()
        async with program("agent", *options) as second:
            assert await said(second, b"\n") == begun
            await said(second, question)
            async with asyncio.timeout(PATIENCE):
                output, _ = await second.communicate(b"y\n")
    assert second.returncode == 0
    assert output.decode().splitlines()[-2:] == ["completed ", "{'size': 'large', 'approved': True}"]


async def test_an_agent_that_is_interrupted_at_its_question_ends_without_a_traceback(tmp_path: Path) -> None:
    async with (
        running(REPORT_SERVER, tmp_path) as (server, _),
        program("agent", "--port", str(server.port), "--journal", str(tmp_path / "agent.db")) as agent,
    ):
        await said(agent, b"(y/n) ")
        os.kill(agent.pid, signal.SIGINT)
        async with asyncio.timeout(PATIENCE):
            output, errors = await agent.communicate()
    assert (output.decode().splitlines()[-1], errors) == ("start me again", b"")
