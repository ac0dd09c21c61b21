"""However a server was started: told to stop, it gives its tasks a grace period, and others finish what is left."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.acceptance.support import accepts, connected, effect, effects, free_port, rows, store_url
from tests.acceptance.workers import APP, PERDURE, attending, environment, start_worker
from tests.copies import Copy, talking
from tests.support import PATIENCE, eventually
from tests.wire.envelopes import envelope, headers
from tests.wire.support import Caller, Client, Piped, plain_http

MCP_RUN: Final = "from tests.acceptance.fleet import mcp, tasks; tasks.configure(store={store!r}); "
HOWS: Final[dict[str, Callable[[str, int], list[str]]]] = {
    "perdure serve": lambda store, port: [PERDURE, "serve", APP, "--store", store, "--port", str(port)],
    "mcp.run": lambda store, port: [
        sys.executable,
        "-c",
        f"{MCP_RUN.format(store=store)} mcp.run('streamable-http', port={port})",
    ],
    "uvicorn": lambda store, port: [
        sys.executable,
        "-c",
        f"{MCP_RUN.format(store=store)} import uvicorn; uvicorn.run(mcp.streamable_http_app(), port={port})",
    ],
    "stdio, our own": lambda store, port: [PERDURE, "serve", APP, "--store", store, "--stdio"],
    "stdio, the SDK's": lambda store, port: [sys.executable, "-c", f"{MCP_RUN.format(store=store)} mcp.run('stdio')"],
}


@asynccontextmanager
async def started(how: str, folder: Path) -> AsyncGenerator[tuple[Copy, Caller]]:
    """A server that runs tasks, and a client of it."""
    port = free_port()
    command, env = HOWS[how](store_url(folder), port), environment(folder, {"GRACE": "1500ms"})
    with (folder / "server.log").open("wb") as log:
        async with talking(command, env=env, errors=log.fileno()) as child:
            if how.startswith("stdio"):
                yield child, Piped(child)
            else:
                await eventually(lambda: accepts(port), "it listens")
                async with connected(port) as client:
                    yield child, client


def tell(child: Copy, how: str) -> None:
    """Ask the server to end."""
    if how.startswith("stdio"):
        assert child.stdin is not None
        child.stdin.close()
    else:
        os.kill(child.pid, signal.SIGTERM)


@pytest.mark.parametrize("how", HOWS)
async def test_running_tasks_get_a_grace_period_and_then_others_finish_them(how: str, tmp_path: Path) -> None:
    gate, soon = tmp_path / "gate", tmp_path / "soon"
    async with started(how, tmp_path) as (child, client):
        left = await client.start("waiting", {"label": "left", "gate": str(gate)})
        graced = await client.start("waiting", {"label": "graced", "gate": str(soon)})
        for task_id in (left, graced):
            await effect(tmp_path, task_id, "start", pid=child.pid)
        tell(child, how)
        soon.touch()
        # Started now, so that its start takes place within the grace period.
        other = await start_worker(tmp_path)
        async with attending(tmp_path, other), asyncio.timeout(PATIENCE):
            await child.wait()
            assert rows(tmp_path, "SELECT id FROM task WHERE status = 'completed'") == [(graced,)]
            gate.touch()
            await eventually(lambda: rows(tmp_path, "SELECT 1 FROM run") == [], "it is finished")
    for task_id, process in ((left, other), (graced, child)):
        (end,) = effects(tmp_path, task_id, "end")
        assert (end.pid, end.attempt) == (process.pid, 1)


async def test_a_client_that_listens_for_ever_does_not_hold_a_server_up(tmp_path: Path) -> None:
    async with started(how := "mcp.run", tmp_path) as (child, client):
        assert isinstance(client, Client)
        body = envelope("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        async with (
            plain_http() as http,
            http.stream("POST", client.url, json=body, headers=headers(body)) as response,
        ):
            assert response.headers["content-type"].startswith("text/event-stream")
            await eventually(lambda: rows(tmp_path, "SELECT count(*) FROM session") == [(1,)], "it works")
            tell(child, how)
            await eventually(lambda: rows(tmp_path, "SELECT count(*) FROM session") == [(0,)], "it claims nothing more")
            assert child.returncode is None, "while the request goes on"
            async with asyncio.timeout(PATIENCE):
                await child.wait()
