"""A server with its tools, and raw clients for it: over HTTP on loopback, and over the pipes of a child process.

The clients know JSON-RPC and headers and nothing else, so that they can be wrong on purpose. Every response that one of
them reads is judged by `checker` before a test sees it.
"""

import asyncio
import json
import socket
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx2
import uvicorn
from mcp.server.mcpserver import MCPServer
from starlette.types import ASGIApp

from perdure import Tasks
from perdure.store.clock import Clock
from perdure.store.sqlite import SQLiteStore
from tests.copies import Copy, talking
from tests.support import PATIENCE
from tests.wire import checker
from tests.wire.envelopes import EVERYTHING, JSON, Headers, envelope, headers

TERMINAL: Final = frozenset({"completed", "failed", "cancelled"})
ROOT: Final = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Reply:
    """An answer. `raw` is the body's text, byte for byte; `body` what it says as JSON, None if it is empty.

    `fields` are the headers over HTTP, in order, but for the date.
    """

    status: int
    raw: bytes
    body: JSON
    fields: tuple[tuple[str, str], ...] = ()

    @property
    def result(self) -> JSON:
        assert "result" in self.body, self.body
        return self.body["result"]

    @property
    def error(self) -> JSON:
        assert "error" in self.body, self.body
        return self.body["error"]

    @property
    def code(self) -> int:
        return self.error["code"]

    @property
    def required(self) -> JSON:
        """What a -32021 says that the client would have had to declare."""
        assert self.code == -32021, self.body
        return self.error["data"]["requiredCapabilities"]

    @property
    def text(self) -> str:
        """The text of a tool's result."""
        return self.result["content"][0]["text"]


class Caller:
    """What both transports share: requests by name, and everything that was seen."""

    def __init__(self) -> None:
        self.history = checker.History()
        self._last_id = 0

    async def exchange(self, body: JSON, extra: Headers | None) -> Reply:
        """Send a request and read its response."""
        raise NotImplementedError

    async def request(
        self,
        method: str,
        params: Mapping[str, JSON] | None = None,
        *,
        capabilities: JSON = EVERYTHING,
        extra: Headers | None = None,
    ) -> Reply:
        """A well-made request, judged. `extra` headers replace those that belong to it; an empty one removes it."""
        self._last_id += 1
        body = envelope(method, params, id=self._last_id, capabilities=capabilities)
        return self.judge(body, await self.exchange(body, extra))

    def judge(self, body: JSON, reply: Reply) -> Reply:
        checker.check(body, reply.status, reply.body)
        result = reply.body.get("result", {})
        if "taskId" in result:
            self.history.see(result)
        return reply

    async def call(self, name: str, arguments: JSON = None, **options: Any) -> Reply:
        params = {"name": name} | ({} if arguments is None else {"arguments": arguments}) | options.pop("params", {})
        return await self.request("tools/call", params, **options)

    async def start(self, name: str, arguments: JSON = None, **options: Any) -> str:
        """Call a tool that becomes a task: its id."""
        reply = await self.call(name, arguments, **options)
        assert reply.result["resultType"] == "task", reply.body
        return reply.result["taskId"]

    async def get(self, task_id: JSON, **options: Any) -> Reply:
        return await self.request("tasks/get", {"taskId": task_id}, **options)

    async def update(self, task_id: JSON, responses: JSON, **options: Any) -> Reply:
        return await self.request("tasks/update", {"taskId": task_id, "inputResponses": responses}, **options)

    async def cancel(self, task_id: JSON, **options: Any) -> Reply:
        return await self.request("tasks/cancel", {"taskId": task_id}, **options)

    async def until(self, task_id: str, *statuses: str, **options: Any) -> JSON:
        """Poll until the task has one of `statuses` (any terminal one by default): what `tasks/get` says then."""
        wanted = statuses or tuple(TERMINAL)
        async with asyncio.timeout(PATIENCE):
            while True:
                task = (await self.get(task_id, **options)).result
                if task["status"] in wanted:
                    return task
                assert task["status"] not in TERMINAL, f"waiting for {wanted}: {task}"
                await asyncio.sleep(0.01)

    async def finish(self, name: str, arguments: JSON = None, **options: Any) -> JSON:
        """Call a tool as a task and wait for its end: what `tasks/get` says then."""
        return await self.until(await self.start(name, arguments, **options))


class Client(Caller):
    """A raw client over HTTP. `token` goes along as a bearer."""

    def __init__(self, http: httpx2.AsyncClient, url: str, token: str | None = None) -> None:
        super().__init__()
        self.http = http
        self.url = url
        self._token = token

    def bearing(self, token: str | None) -> "Client":
        """Another client of the same server, with a token of its own."""
        return Client(self.http, self.url, token)

    async def exchange(self, body: JSON, extra: Headers | None = None) -> Reply:
        found = headers(body) | (extra or {})
        return await self.post(json.dumps(body).encode(), [(name, value) for name, value in found.items() if value])

    async def post(self, content: bytes, fields: list[tuple[str, str]]) -> Reply:
        """Send exactly this."""
        if self._token is not None:
            fields = [*fields, ("authorization", f"Bearer {self._token}")]
        response = await self.http.post(self.url, content=content, headers=fields)
        is_json = response.headers.get("content-type", "").startswith("application/json")
        found = tuple((name, value) for name, value in response.headers.multi_items() if name != "date")
        body = json.loads(response.content) if is_json else None
        return Reply(response.status_code, response.content, body, found)

    @asynccontextmanager
    async def streaming(self, body: JSON, extra: Headers | None = None) -> AsyncGenerator[httpx2.Response]:
        """Send a request whose response is a stream; outside the connection is closed."""
        fields = headers(body) | (extra or {})
        if self._token is not None:
            fields["authorization"] = f"Bearer {self._token}"
        async with self.http.stream("POST", self.url, content=json.dumps(body).encode(), headers=fields) as response:
            yield response

    async def speak(self, content: bytes, fields: list[tuple[str, str]], *, request: str = "POST /mcp") -> Reply:
        """The same over a bare socket, for what no HTTP library would send."""
        address = httpx2.URL(self.url)
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            try:
                head = [f"{request} HTTP/1.1", f"host: {address.netloc.decode()}", "connection: close"]
                head += [f"{name}:{value}" for name, value in fields]
                if "content-length" not in {name for name, _ in fields}:
                    head.append(f"content-length: {len(content)}")
                writer.write("\r\n".join([*head, "", ""]).encode("latin-1") + content)
                answer = await reader.read()
            finally:
                writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        is_json = b"application/json" in head.lower()
        return Reply(int(head.split()[1]), body, json.loads(body) if is_json else None)


@dataclass
class Stage:
    """A server that is up, and who talks to it. `store` is the server's own: what a worker may do, a test may do."""

    tasks: Tasks
    store: SQLiteStore
    mcp: MCPServer[Any]
    client: Client
    http: httpx2.AsyncClient
    database: Path

    def dump(self) -> list[tuple[str, list[Any]]]:
        """Everything that lies in the store, but for the leases, which are renewed whether anybody asks or not."""
        return dump(self.database)


def dump(database: Path) -> list[tuple[str, list[Any]]]:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall()
        # Names come from the schema itself.
        return [
            (name, sorted(connection.execute(f'SELECT * FROM "{name}"').fetchall(), key=repr))
            for (name,) in names
            if name != "session"
        ]


Declare = Callable[[Tasks], None]


def tasks_on(store: SQLiteStore, **options: Any) -> Tasks:
    """Tasks whose shutdown waits for nobody: tests end while their tools still run."""
    merged: dict[str, Any] = {"grace": "1ms", "lease": "1h"} | options
    return Tasks(store, **merged)


@asynccontextmanager
async def stage(
    tmp_path: Path,
    declare: Declare,
    *,
    server: Mapping[str, Any] | None = None,
    clock: Clock | None = None,
    **options: Any,
) -> AsyncGenerator[Stage]:
    """A server with the tools that `declare` declares; `options` are those of `Tasks`, `server` of `tasks.server`."""
    database = tmp_path / "tasks.db"
    store = SQLiteStore(f"sqlite:///{database}", clock)
    tasks = tasks_on(store, **options)
    mcp = tasks.server("wire", version="1.0", **(server or {}))
    declare(tasks)
    async with serving(mcp) as (http, url):
        yield Stage(tasks, store, mcp, Client(http, url), http, database)


@asynccontextmanager
async def replica(scene: Stage) -> AsyncGenerator[Client]:
    """Another server on the same file, which runs no tasks; a client of it."""
    tasks = tasks_on(SQLiteStore(f"sqlite:///{scene.database}"), worker=False)
    async with serving(tasks.server("wire", version="1.0")) as (http, url):
        yield Client(http, url)


@asynccontextmanager
async def serving(mcp: MCPServer[Any]) -> AsyncGenerator[tuple[httpx2.AsyncClient, str]]:
    """`mcp` over HTTP on a free port of loopback, in this event loop: a client and the URL."""
    async with hosting(mcp.streamable_http_app()) as (http, url):
        yield http, f"{url}/mcp"


@asynccontextmanager
async def hosting(app: ASGIApp) -> AsyncGenerator[tuple[httpx2.AsyncClient, str]]:
    """Any application likewise: a client and the URL of its root, without a slash at the end."""
    with closing(socket.socket(proto=socket.IPPROTO_TCP)) as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(app, log_config=None, lifespan="on", ws="none")
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(PATIENCE):
                await server.startup([listener])
            stack.push_async_callback(_stop, server)
            http = await stack.enter_async_context(plain_http())
            yield http, f"http://127.0.0.1:{listener.getsockname()[1]}"


def plain_http() -> httpx2.AsyncClient:
    """Without TLS, which nobody speaks here and whose certificates take longer to load than most tests."""
    return httpx2.AsyncClient(timeout=PATIENCE, trust_env=False, verify=False)


async def _stop(server: uvicorn.Server) -> None:
    """uvicorn's own shutdown, without its pauses: whoever talked to it has hung up already."""
    for listening in server.servers:
        listening.close()
    for connection in tuple(server.server_state.connections):
        connection.shutdown()
    async with asyncio.timeout(PATIENCE):
        await server.lifespan.shutdown()


# -- stdio -------------------------------------------------------------------------------------------------------------


class Piped(Caller):
    """A raw client of a child process that speaks stdio. One request at a time."""

    def __init__(self, child: Copy) -> None:
        super().__init__()
        self.child = child

    async def write(self, line: bytes) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(line + b"\n")
        await self.child.stdin.drain()

    async def read(self) -> JSON:
        assert self.child.stdout is not None
        async with asyncio.timeout(PATIENCE):
            line = await self.child.stdout.readline()
        assert line, "the server hung up"
        return json.loads(line)

    async def exchange(self, body: JSON, extra: Headers | None = None) -> Reply:
        assert extra is None, "pipes have no headers"
        await self.write(json.dumps(body).encode())
        answer = await self.read()
        # There is no HTTP status here; the checker wants the one that would be right.
        code = answer.get("error", {}).get("code")
        return Reply(checker.http_status(code), json.dumps(answer).encode(), answer)


PipedT = TypeVar("PipedT", bound=Piped)


@asynccontextmanager
async def piped(*command: str, speak: Callable[[Copy], PipedT] = Piped) -> AsyncGenerator[PipedT]:
    """`python COMMAND…` as a child whose standard input and output are ours. It ends when its input does."""
    async with talking([sys.executable, *command], errors=subprocess.DEVNULL, limit=1 << 24) as child:
        yield speak(child)
        assert child.stdin is not None
        child.stdin.close()
        async with asyncio.timeout(PATIENCE):
            assert await child.wait() == 0, "the server did not end well"
