"""Gateway processes, the server behind them, and clients that outlive any of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.acceptance.support import CRASH_SERVER, Server, begun, connected, environment, free_port, start
from tests.copies import PERDURE
from tests.support import PATIENCE, eventually
from tests.wire.envelopes import JSON, envelope
from tests.wire.support import Client, Reply

CONFIG: Final = """
[gateway]
name = "front"
store = "{store}"

[auth]
verifier = "tests.gateway.tokens:Verifier"
issuer = "https://login.example"
resource = "https://front.example/mcp"
scopes = ["tools"]

[backends.it]
url = "http://127.0.0.1:{port}/mcp"
health = {{ every = "200ms" }}
breaker = {{ pause = "200ms", longest = "500ms" }}
"""


@dataclass
class Front:
    """Two gateways, `a` and `b`, on one table of routes, and a server behind both. `ada`: a client of each, by name."""

    folder: Path
    store: str
    servers: dict[str, Server]
    clients: dict[str, Client]

    def client(self, gateway: str, who: str = "ada") -> Client:
        return self.clients[gateway].bearing(who)

    async def begin(self, name: str, port: int) -> None:
        """Start one of the three, on a port that it may have had before."""
        self.servers[name] = await (self._behind(port) if name == "it" else self._gateway(port))
        await self.servers[name].listening()

    async def begin_again(self, name: str) -> None:
        await self.begin(name, self.servers[name].port)

    async def kill(self, name: str) -> None:
        await self.servers[name].kill()

    async def _behind(self, port: int) -> Server:
        options = ("--store", self.store) if self.store.startswith("postgresql") else ()
        return await start(CRASH_SERVER, self.folder, *options, port=port, env={"LEASE": "3s"})

    async def _gateway(self, port: int) -> Server:
        output = self.folder / f"gateway-{port}.log"
        command = [PERDURE, "gateway", str(self.folder / "gateway.toml"), "--port", str(port)]
        return Server(await begun(command, output, environment(self.folder), anew=False), port, output)


@asynccontextmanager
async def fronted(folder: Path, store: str) -> AsyncGenerator[Front]:
    """All three, up. At the end whatever is still there is stopped in order."""
    ports = {name: free_port() for name in ("it", "a", "b")}
    (folder / "gateway.toml").write_text(CONFIG.format(store=store, port=ports["it"]))
    async with connected(ports["a"]) as a, connected(ports["b"]) as b:
        front = Front(folder, store, {}, {"a": a, "b": b})
        try:
            for name, port in ports.items():
                await front.begin(name, port)
            yield front
            for name in ("a", "b", "it"):
                if front.servers[name].alive:
                    await front.servers[name].stop()
                assert not front.servers[name].complaints(), front.servers[name].output.read_text()
        finally:
            for server in front.servers.values():
                if server.alive:
                    await server.kill()


async def asked(client: Client, method: str, task_id: str, **params: Any) -> Reply:
    return await client.exchange(envelope(method, {"taskId": task_id, **params}))


async def until(client: Client, task_id: str, status: str) -> JSON:
    """Poll until the task has this status, through whatever is refused meanwhile as not possible just now."""
    seen: list[JSON] = []

    async def reached() -> bool:
        reply = await asked(client, "tasks/get", task_id)
        seen.append(reply.body)
        if "error" in reply.body:
            assert reply.error["data"]["gateway"] is True, reply.body
            assert reply.error["data"]["retryAfterMs"] >= 0, reply.body
        return reply.body.get("result", {}).get("status") == status

    try:
        await eventually(reached, f"the task never was {status}", within=PATIENCE * 2)
    except AssertionError as error:
        raise AssertionError(f"{error}: {seen[-1]}") from None
    return seen[-1]["result"]
