"""Server processes and clients of theirs, for tests that see Perdure as its users do: from outside.

Nothing here looks into perdure. Servers are started and stopped by their process id and listen on loopback; clients are
the raw ones of the wire tests, which judge every response; the store is read with `sqlite3`, and what tools did is read
in the log that `crash_server.py` writes.
"""

import asyncio
import json
import os
import signal
import socket
import sqlite3
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from perdure.testing.postgresql.programs import free_port
from tests import copies
from tests.support import PATIENCE, eventually
from tests.wire.support import ROOT, Client, plain_http

JSON = Any
CRASH_SERVER: Final = Path(__file__).with_name("crash_server.py")
REPORT_SERVER: Final = ROOT / "examples" / "report_server.py"


def accepts(port: int) -> bool:
    """Whether somebody listens on the port."""
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


Process = asyncio.subprocess.Process | copies.Copy


def signalled(child: Process, how: signal.Signals) -> None:
    """Send a signal to a child that may be ending just now.

    Its own `send_signal` looks first whether it has ended, and whoever looks takes the exit status away from asyncio.
    """
    with suppress(ProcessLookupError):
        os.kill(child.pid, how)


class Server:
    """A server process. Made by `start`, or by `running`, which also ends it."""

    def __init__(self, process: Process, port: int, output: Path) -> None:
        self.process = process
        self.port = port
        self.output = output
        """What it wrote to its standard output and error."""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.returncode is None

    async def listening(self) -> None:
        def up() -> bool:
            assert self.alive, f"the server ended: {self.output.read_text()}"
            return accepts(self.port)

        try:
            await eventually(up, "the server listens")
        except AssertionError as error:
            await self.end(signal.SIGABRT)  # makes it tell where it hangs
            raise AssertionError(f"{error}: {self.output.read_text()[-5000:]}") from None

    async def stop(self) -> int:
        """SIGTERM, and wait for the end of an orderly shutdown."""
        return await self.end(signal.SIGTERM)

    async def kill(self) -> int:
        return await self.end(signal.SIGKILL)

    async def end(self, how: signal.Signals) -> int:
        """Send the signal; the exit status once the process is gone."""
        if self.alive:
            signalled(self.process, how)
        async with asyncio.timeout(PATIENCE):
            return await self.process.wait()

    def complaints(self) -> list[str]:
        """The lines of its output that no healthy server writes."""
        lines = self.output.read_text(errors="replace").splitlines()
        return [line for line in lines if "Traceback" in line or "crashed" in line or "CRITICAL" in line]


async def start(
    script: Path, folder: Path, *options: str, port: int = 0, env: Mapping[str, str] | None = None, anew: bool = False
) -> Server:
    """`python SCRIPT --port PORT --store …/tasks.db OPTIONS` as a process that has just begun."""
    port = port or free_port()
    output = folder / f"server-{port}.log"
    command = [sys.executable, str(script), "--port", str(port), "--store", store_url(folder), *options]
    return Server(await begun(command, output, environment(folder, env), anew=anew), port, output)


def environment(folder: Path, env: Mapping[str, str] | None = None) -> dict[str, str]:
    return {**os.environ, "PYTHONFAULTHANDLER": "1", "EFFECTS": str(folder / "effects.log"), **(env or {})}


async def begun(command: Sequence[str], output: Path, env: Mapping[str, str], *, anew: bool) -> Process:
    """A process of that command in the repository's root: a copy of one that has loaded Perdure, or started `anew`."""
    with output.open("ab") as sink:
        if not anew:
            return copies.start(command, env=env, output=sink.fileno(), errors=sink.fileno())
        return await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=sink, stderr=sink
        )


@asynccontextmanager
async def running(
    script: Path, folder: Path, *options: str, env: Mapping[str, str] | None = None
) -> AsyncGenerator[tuple[Server, Client]]:
    """A server that listens, and a client of it. At the end it is stopped in order, unless it is gone already."""
    async with attended(await start(script, folder, *options, env=env)) as both:
        yield both


@asynccontextmanager
async def attended(server: Server) -> AsyncGenerator[tuple[Server, Client]]:
    """`running`, for a server that was started."""
    try:
        await server.listening()
        async with connected(server.port) as client:
            yield server, client
        await server.stop()
        assert not server.complaints(), server.output.read_text()
    finally:
        if server.alive:
            await server.kill()


@asynccontextmanager
async def connected(port: int) -> AsyncGenerator[Client]:
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(plain_http())
        yield Client(http, f"http://127.0.0.1:{port}/mcp")


# -- what is left on the disk ------------------------------------------------------------------------------------------


def store_url(folder: Path) -> str:
    return f"sqlite:///{folder / 'tasks.db'}"


def rows(folder: Path, query: str, *values: object) -> list[tuple[Any, ...]]:
    """What a query finds in the folder's store."""
    with closing(sqlite3.connect(f"file:{folder / 'tasks.db'}?mode=ro", uri=True, timeout=PATIENCE)) as connection:
        return connection.execute(query, values).fetchall()


@dataclass(frozen=True)
class Effect:
    """A line of the side-effect log. `offset`: how many bytes of the log lie before it."""

    offset: int
    event: str
    task: str
    token: str
    pid: int
    attempt: int


def effects(folder: Path, task_id: str | None = None, event: str | None = None) -> list[Effect]:
    """What tools did, in the order in which they did it."""
    path = folder / "effects.log"
    found: list[Effect] = []
    offset = 0
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else ():
        found.append(Effect(offset, **json.loads(line)))
        offset += len(line)
    return [one for one in found if task_id in (None, one.task) and event in (None, one.event)]


async def effect(folder: Path, task_id: str, event: str, *, pid: int | None = None) -> Effect:
    """Wait until a tool did that (in that process): its last such line."""

    def found() -> list[Effect]:
        return [one for one in effects(folder, task_id, event) if pid in (None, one.pid)]

    await eventually(lambda: bool(found()), f"{event} of {task_id}")
    return found()[-1]
