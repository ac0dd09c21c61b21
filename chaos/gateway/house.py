"""Everything that stands in the storm: two gateways, three backends, PostgreSQL, Redis, and the links between them.

Each gateway reaches each backend by a link of its own, and each process its PostgreSQL server by one, so that any of
these can be cut or parted alone. Redis is FastMCP's affair and stands aside.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from socket import socket
from typing import Final

from chaos.links import Link
from chaos.plan import Fault, Share
from chaos.processes import Fleet, Kind, Seat
from chaos.stores.base import Site, Trouble
from chaos.stores.postgresql import PostgreSQLGround, ground
from perdure.testing.postgresql.programs import free_port
from tests import pypi

from .oracle import Route, Row

__all__ = ["House", "built"]

ROOT: Final = Path(__file__).resolve().parents[2]
HERE: Final = Path(__file__).resolve().parent
FASTMCP: Final = ("fastmcp==4.1.4", "fastmcp-tasks==4.1.4")
BACKENDS: Final = ("ours", "fast", "plain")
_REDIS_WITHIN: Final = 20.0
_CONFIG: Final = """
[gateway]
name = "front"
store = "{store}"

[auth]
verifier = "chaos.gateway.tokens:Verifier"
issuer = "https://login.example"
resource = "https://tools.example/mcp"
"""
_BACKEND: Final = """
[backends.{name}]
url = "http://127.0.0.1:{port}/mcp"
timeouts = {{ connect = "1s", read = "3s", request = "6s", queue = "2s" }}
"""
_SIGNED: Final = 'identity = { kind = "signed", audience = "ours", key = "one", secret_env = "CHAOS_SECRET" }\n'
_ROUTES: Final = "SELECT id, principal, backend, backend_task_id FROM perdure.route"
_ROWS: Final = "SELECT id, principal, params::json -> 'arguments' ->> 'label', status FROM perdure.task"


class House:
    """`fleet`: the processes, the gateways first. `troubles`: what can be done beneath and between them."""

    def __init__(self, fleet: Fleet, store: PostgreSQLGround, links: Sequence[Link], troubles: Mapping[str, Trouble]):
        self.fleet = fleet
        self.troubles = troubles
        self._store = store
        self._links = links

    @property
    def gateways(self) -> list[Seat]:
        return self.fleet.seats[:2]

    @property
    def logs(self) -> Sequence[Path]:
        """Of those whose words are our affair."""
        return [seat.log for seat in self.fleet.seats if seat.kind.ours]

    @property
    def kind(self) -> str:
        return self._store.kind

    @property
    def secrets(self) -> Sequence[str]:
        return self._store.secrets

    async def heal(self) -> None:
        await self._store.heal()
        for link in self._links:
            await link.listen()

    async def routes(self) -> dict[str, Route]:
        return {row[0]: Route(*row) for row in await self._store.rows(_ROUTES)}

    async def rows(self) -> dict[str, Row]:
        return {row[0]: Row(*row) for row in await self._store.rows(_ROWS)}


@contextmanager
def built(scratch: Path) -> Generator[tuple[PostgreSQLGround, int, Path]]:
    """PostgreSQL, the port of Redis, and the Python that has FastMCP: what takes long, and no event loop."""
    python = pypi.environment(ROOT / "build" / "fastmcp", *FASTMCP)
    with ground(Site(scratch, "the clocks are left alone", False, 3)) as store, _redis(scratch) as port:
        yield store, port, python


@asynccontextmanager
async def standing(scratch: Path, store: PostgreSQLGround, redis: int, python: Path) -> AsyncGenerator[House]:
    """All of it, with every process on its way up."""
    gateway = Kind("gateway", ("gateway", "{store}", "--port", "{port}"), listens=True)
    ours = Kind("ours", ("serve", "chaos.gateway.ours:mcp", "--port", "{port}", "--store", "{store}"), listens=True)
    fast = Kind("fast", (str(HERE / "fastmcp_server.py"), "{port}"), listens=True, program=python, ours=False)
    plain = Kind(
        "plain", (str(HERE / "plain_server.py"), "{port}"), listens=True, program=Path(sys.executable), ours=False
    )
    environment = {
        "CHAOS_SECRET": secrets.token_hex(32),
        "FASTMCP_DOCKET_URL": f"redis://127.0.0.1:{redis}/0",
        "FASTMCP_DOCKET_REDELIVERY_TIMEOUT": "00:00:05",
        **store.environment,
    }
    urls: list[str] = []
    fleet = Fleet(
        [gateway, gateway, ours, fast, plain], scratch, urls.__getitem__, store.leases, environment, lambda _: False
    )
    links = [[Link(free_port(), seat.port) for seat in fleet.seats[2:]] for _ in range(2)]
    for number, to_backends in enumerate(links):
        config = scratch / f"gateway-{number}.toml"
        config.write_text(_config(store.url(number), to_backends))
        config.chmod(0o600)
        urls.append(str(config))
    urls.append(store.url(2))
    all_links = [link for several in links for link in several]
    async with store.prepared():
        try:
            for link in all_links:
                await link.listen()
            fleet.begin()
            yield House(fleet, store, all_links, {**store.troubles, **_between(all_links)})
        finally:
            await fleet.close()
            for link in all_links:
                await link.close()


def _config(store: str, links: Sequence[Link]) -> str:
    backends = [
        _BACKEND.format(name=name, port=link.port) + (_SIGNED if name == "ours" else "")
        for name, link in zip(BACKENDS, links, strict=True)
    ]
    return _CONFIG.format(store=store) + "".join(backends)


def _between(links: Sequence[Link]) -> Mapping[str, Trouble]:
    """What is done to the connections between gateways and backends."""
    turns = [asyncio.Lock() for _ in links]

    async def cut(fault: Fault) -> bool:
        link = links[fault.seat % len(links)]
        before = link.met
        link.cut()
        return link.met > before

    async def part(fault: Fault) -> bool:
        link = links[fault.seat % len(links)]
        before = link.met
        async with link.parted():
            await asyncio.sleep(fault.span)
        return link.met > before

    return {
        "gateway cut off from a backend": Trouble(Share(8, _moment), cut, turns),
        "gateway and backend parted": Trouble(Share(3, _moment), part, turns),
    }


def _moment(rng: random.Random, _: float) -> tuple[float, float]:
    return rng.uniform(0.3, 4), 0.0


@contextmanager
def _redis(scratch: Path) -> Generator[int]:
    program = shutil.which("redis-server")
    if program is None:
        raise RuntimeError("FastMCP's tasks need a store that outlives it: apt-get install redis-server")
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(scratch), "--save", "", "--appendonly", "no"]
    with (
        (scratch / "redis.out").open("wb") as sink,
        subprocess.Popen([program, *options], stdout=sink, stderr=sink, start_new_session=True) as process,
    ):
        try:
            deadline = time.monotonic() + _REDIS_WITHIN
            while not _accepts(port):
                if time.monotonic() > deadline:
                    raise TimeoutError("Redis does not come up")
                time.sleep(0.02)
            yield port
        finally:
            process.kill()


def _accepts(port: int) -> bool:
    with closing(socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
