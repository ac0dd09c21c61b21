"""Processes of the crash server's app on PostgreSQL: replicas that serve, with or without a worker of their own.

A process may have a clock of its own, which is hours from the others'.
"""

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from perdure.store.postgres import PostgresUpgrade
from perdure.testing.postgresql import Cluster
from tests.acceptance.support import Server, connected, free_port
from tests.acceptance.workers import PERDURE, WORKING, launch
from tests.support import eventually
from tests.wire.support import Client

APP: Final = "tests.acceptance.crash_server:mcp"
LOST: Final = "can't be used"
FOUND: Final = "can be used again"
_OTHER_CLOCK: Final = """\
import os, time
_time, _time_ns, _ahead = time.time, time.time_ns, int(os.environ["AHEAD"])
time.time = lambda: _time() + _ahead
time.time_ns = lambda: _time_ns() + _ahead * 10**9
"""


def clock(folder: Path, ahead: int) -> dict[str, str]:
    """The environment of a process whose clock is `ahead` seconds ahead; or behind, if that is negative."""
    place = folder / "clock"
    place.mkdir(exist_ok=True)
    (place / "sitecustomize.py").write_text(_OTHER_CLOCK)
    return {"PYTHONPATH": f"{place}:{os.environ.get('PYTHONPATH', '')}".rstrip(":"), "AHEAD": str(ahead)}


@dataclass
class Replica:
    """A process that serves, and a client of it."""

    server: Server
    client: Client

    @property
    def log(self) -> str:
        return self.server.output.read_text()

    def said(self, what: str) -> int:
        return self.log.count(what)


async def start_replica(folder: Path, store: str, *options: str, env: Mapping[str, str] | None = None) -> Server:
    port = free_port()
    command = [PERDURE, "serve", APP, "--port", str(port), "--store", store, *options]
    return await launch(folder, *command, port=port, env=env, anew="AHEAD" in (env or {}))


@asynccontextmanager
async def attended(server: Server) -> AsyncGenerator[Replica]:
    """A replica that was started, once it listens. At the end it is stopped in order, unless it is gone already."""
    try:
        await server.listening()
        async with connected(server.port) as client:
            yield Replica(server, client)
        if server.alive:
            await server.stop()
        assert not server.complaints(), server.output.read_text()
    finally:
        if server.alive:
            await server.kill()


@asynccontextmanager
async def worker(folder: Path, store: str, env: Mapping[str, str] | None = None) -> AsyncGenerator[Server]:
    """A process that only works. At the end as `attended`."""
    process = await launch(folder, PERDURE, "worker", APP, "--store", store, env=env, anew="AHEAD" in (env or {}))
    try:

        def works() -> bool:
            assert process.alive, process.output.read_text()
            return WORKING in process.output.read_text()

        await eventually(works, "the worker works")
        yield process
        if process.alive:
            assert await process.stop() == 0, process.output.read_text()
        assert not process.complaints(), process.output.read_text()
    finally:
        if process.alive:
            await process.kill()


async def migrated(cluster: Cluster, name: str) -> str:
    """The URL of a new database with all tables."""
    url = cluster.create_database(name)
    await PostgresUpgrade(url).apply(post=True)
    return url


def sessions(cluster: Cluster, database: str) -> list[int]:
    """The processes that hold a lease."""
    return [int(row) for row in cluster.sql("SELECT info::jsonb -> 'pid' FROM perdure.session", database).splitlines()]
