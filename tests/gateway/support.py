"""A gateway before real backends, all over HTTP on loopback and in one event loop, and raw clients of it."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2

from perdure.gateway.app import Gateway
from perdure.gateway.config import GatewayConfig, parse
from perdure.ops.gateway import application, assemble
from perdure.store.memory import MemoryRoutes
from perdure.store.routes import Routes
from tests.wire.support import Client, hosting

__all__ = ["Front", "configured", "fronting"]


@dataclass
class Front:
    """A gateway that is up. `client`: of the gateway. `routes`: its table."""

    gateway: Gateway
    client: Client
    http: httpx2.AsyncClient
    url: str
    routes: Routes


def configured(backends: Mapping[str, str], more: str = "") -> GatewayConfig:
    """A configuration whose backends are at these URLs. `more` is added to the file, before the backends."""
    tables = "\n".join(f'[backends.{name}]\nurl = "{url}"\nprefix = "{name}_"' for name, url in backends.items())
    return parse(f'[gateway]\nname = "front"\nstore = "memory"\n{more}\n{tables}')


@asynccontextmanager
async def fronting(
    backends: Mapping[str, str], more: str = "", *, routes: Routes | None = None, config: GatewayConfig | None = None
) -> AsyncGenerator[Front]:
    """A gateway before the backends at these URLs, each under its name as a prefix."""
    read, table = config or configured(backends, more), routes or MemoryRoutes()
    gateway = assemble(read, table)
    async with hosting(application(read, gateway, table)) as (http, url):
        yield Front(gateway, Client(http, f"{url}/mcp"), http, f"{url}/mcp", table)
