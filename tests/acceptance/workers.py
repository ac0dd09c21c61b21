"""Processes of one app on one SQLite file: servers that run nothing, and `perdure worker`."""

import json
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

from tests import copies
from tests.acceptance.support import Server, attended, begun, environment, free_port, rows, store_url
from tests.support import eventually
from tests.wire import support as wire
from tests.wire.support import Client

PERDURE: Final = copies.PERDURE
APP: Final = "tests.acceptance.fleet:mcp"
WORKING: Final = "perdure: working for "
_numbers = count(1)


async def launch(
    folder: Path, *command: str, port: int = 0, env: Mapping[str, str] | None = None, anew: bool = False
) -> Server:
    """Any command as a process that has just begun. Its working folder is the repository's root."""
    output = folder / f"process-{next(_numbers)}.log"
    return Server(await begun(command, output, environment(folder, env), anew=anew), port, output)


async def start_worker(
    folder: Path, *options: str, app: str = APP, env: Mapping[str, str] | None = None, anew: bool = False
) -> Server:
    """A worker process that has just begun."""
    return await launch(folder, PERDURE, "worker", app, "--store", store_url(folder), *options, env=env, anew=anew)


async def at_work(folder: Path, worker: Server) -> Server:
    """Wait until the worker holds a lease."""

    def works() -> bool:
        assert worker.alive, f"the worker ended: {worker.output.read_text()}"
        return WORKING in worker.output.read_text() and bool(sessions(folder, worker))

    await eventually(works, "the worker works")
    return worker


def greeting(worker: Server) -> str:
    """The line in which a worker says what it does."""
    return next(line for line in worker.output.read_text().splitlines() if line.startswith(WORKING))


@asynccontextmanager
async def working(
    folder: Path, *options: str, app: str = APP, env: Mapping[str, str] | None = None
) -> AsyncGenerator[Server]:
    """A worker process at work. At the end it is stopped in order, unless it is gone already."""
    async with attending(folder, await start_worker(folder, *options, app=app, env=env)) as worker:
        yield worker


@asynccontextmanager
async def attending(folder: Path, worker: Server) -> AsyncGenerator[Server]:
    """`working`, for a worker that was started."""
    try:
        yield await at_work(folder, worker)
        if worker.alive:
            assert await worker.stop() == 0, worker.output.read_text()
        assert not worker.complaints(), worker.output.read_text()
    finally:
        if worker.alive:
            await worker.kill()


@asynccontextmanager
async def crew(
    folder: Path, *options: str, count: int = 2, env: Mapping[str, str] | None = None, anew: bool = False
) -> AsyncGenerator[list[Server]]:
    """Several workers alike, started together."""
    started = [await start_worker(folder, *options, env=env, anew=anew) for _ in range(count)]
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(attending(folder, worker)) for worker in started]


@asynccontextmanager
async def serving(folder: Path) -> AsyncGenerator[tuple[Server, Client]]:
    """A server that runs no task, as a process, and a client of it."""
    port = free_port()
    options = ["--port", str(port), "--store", store_url(folder), "--no-worker"]
    async with attended(await launch(folder, PERDURE, "serve", APP, *options, port=port)) as both:
        yield both


@asynccontextmanager
async def accepting(folder: Path) -> AsyncGenerator[Client]:
    """The same in this process, which spares the time of a start: it runs no task all the same."""
    os.environ.setdefault("EFFECTS", os.devnull)
    from tests.acceptance import fleet

    fleet.tasks.configure(store=store_url(folder), worker=False)
    async with wire.serving(fleet.mcp) as (http, url):
        yield Client(http, url)


def sessions(folder: Path, process: Server) -> dict[str, int]:
    """The leases that a process holds, each with its end."""
    if not (folder / "tasks.db").exists() or not rows(folder, "SELECT 1 FROM sqlite_schema WHERE name = 'session'"):
        return {}
    found = rows(folder, "SELECT id, expires_at, info FROM session")
    return {id_: expires for id_, expires, info in found if json.loads(info)["pid"] == process.pid}


async def just_renewed(folder: Path, process: Server) -> set[str]:
    """Wait until the process has renewed its lease, so that it has nothing to write for a while; the lease.

    A process that is stopped within a transaction keeps the file locked for all others, and nothing can help them.
    """
    first = sessions(folder, process)
    await eventually(lambda: sessions(folder, process) != first, "the lease is renewed")
    return set(sessions(folder, process))


async def said(folder: Path, *command: str) -> Any:
    """What a `perdure` command that looks at the folder's store prints, as JSON."""
    ended = await copies.ended([PERDURE, *command, "--store", store_url(folder), "--json"])
    assert ended.code == 0, ended.errors
    return json.loads(ended.output)
