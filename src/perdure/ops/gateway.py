"""The command `perdure gateway`: reads the file, puts the gateway together, looks at the backends, and serves."""

from __future__ import annotations

import importlib
import ipaddress
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import click
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend, RequireAuthMiddleware
from mcp.server.auth.provider import TokenVerifier
from mcp.server.auth.routes import build_resource_metadata_url, create_protected_resource_routes
from mcp.server.transport_security import TransportSecuritySettings
from opentelemetry.trace import Tracer
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from perdure.domain.errors import ConfigurationError, PerdureError, StoreUnavailable
from perdure.gateway.app import Gateway
from perdure.gateway.backends import Asker, Backend
from perdure.gateway.catalog import Catalog
from perdure.gateway.config import AuthConfig, BackendConfig, GatewayConfig, load
from perdure.gateway.health import Health
from perdure.gateway.routing import Routing
from perdure.gateway.upstream import Bounds, Upstream
from perdure.store.routes import Routes
from perdure.wire.identity import ANONYMOUS

from . import health, http, logs, options, ports, stores, verdicts
from .discretion import Command
from .gateway_identity import passing_of
from .leaving import Leaving

__all__ = ["assemble", "gateway"]

_LOOK_WITHIN = 15.0
"""Seconds that the backends have for what is compared at the start."""
_PATIENCE = 2.0
"""Seconds for the answer of the table of routes."""
_PATH = "/mcp"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@click.command("gateway", cls=Command)
@click.argument("config", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="Port to listen on.")
@options.store
@click.option(
    "--allow-anonymous",
    is_flag=True,
    help="Listen beyond this machine though the gateway asks nobody who they are.",
)
@options.log_level
def gateway(
    config: Path, *, host: str, port: int, store: str | None, allow_anonymous: bool, log_level: str | None
) -> None:
    """Serve the MCP servers that the file CONFIG names at one address, and find their tasks again."""
    logs.configure(log_level)
    try:
        read = load(config)
        _check_exposure(read, host, allowed=allow_anonymous)
        routes = stores.open_routes(store or read.store)
        proxy = assemble(read, routes, security=_security(host))
        app = application(read, proxy, routes)
        anyio.run(_look, proxy, routes)
    except PerdureError as error:
        raise SystemExit(f"perdure: {error}") from None
    sockets = ports.bind(host, port)
    where = f"[{host}]" if ":" in host else host
    print(
        f"perdure: serving {read.name} on http://{where}:{sockets[0].getsockname()[1]}/mcp", file=sys.stderr, flush=True
    )
    if read.auth is None:
        print("perdure: no authentication: whoever knows a task's id may read it", file=sys.stderr, flush=True)
    with Leaving() as leaving:
        http.listen(app, sockets, log_level="warning", log_config=None, told=proxy.end_subscriptions, last=leaving.last)


def _check_exposure(config: GatewayConfig, host: str, *, allowed: bool) -> None:
    if config.auth is None and not (allowed or _is_loopback(host)):
        raise ConfigurationError(
            f"{config.name} has no authentication, so anybody who reaches {host} could use it: "
            "write [auth], listen on 127.0.0.1, or say --allow-anonymous"
        )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _security(host: str) -> TransportSecuritySettings | None:
    """As the SDK's servers have it on this machine: a page in a browser may not reach it under another name."""
    if host not in _LOOPBACK:
        return None
    names = ("127.0.0.1:*", "localhost:*", "[::1]:*")
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[*names],
        allowed_origins=[f"http://{name}" for name in names],
    )


def assemble(
    config: GatewayConfig,
    routes: Routes,
    *,
    security: TransportSecuritySettings | None = None,
    tracer: Tracer | None = None,
) -> Gateway:
    """The gateway that a configuration describes, not running yet. `tracer`: in place of the process's own.

    Raises:
        ConfigurationError: a backend can't be called as it is described.
    """
    server_info = {"name": config.name, "version": config.version}
    backends = [_backend(each, server_info) for each in config.backends]
    return Gateway(
        backends,
        Catalog(backends, cast("Any", server_info), config.page, config.instructions),
        Routing(routes),
        security=security,
        tenant_claim=None if config.auth is None else config.auth.tenant_claim,
        retention=config.retention,
        give_up=config.give_up,
        subscriptions=config.subscriptions,
        subscriptions_per_owner=config.subscriptions_per_owner,
        subscribed_tasks=config.subscribed_tasks,
        request_body=config.request_body,
        tracer=tracer,
    )


def _backend(config: BackendConfig, client_info: dict[str, str]) -> Backend:
    times = config.timeouts
    bounds = Bounds(
        connect=times.connect,
        read=times.read,
        idle=times.idle,
        total=times.request,
        body=config.response_body,
        calls=config.concurrency,
        queue=config.queue,
        patience=times.queue,
        streams=config.streams,
        breaker=config.breaker,
        retry=config.retry,
    )
    upstream = Upstream(config.name, config.url, bounds, proxy=config.proxy)
    return Backend(
        config.name,
        upstream,
        passing_of(config, client_info["name"]),
        Health(upstream, config.health),
        config.tools,
        config.prompts,
        config.addresses,
        times.request,
        client_info,
    )


async def _look(proxy: Gateway, routes: Routes) -> None:
    """Open the store once, and compare what the backends have, as far as they can be reached by now.

    Raises:
        StoreUnusable, ConfigurationError: as these say.
    """
    await routes.open()
    await routes.close()
    async with proxy.reaching():
        with anyio.move_on_after(_LOOK_WITHIN):  # one that hangs keeps the gateway from nobody else
            await proxy.catalog.check(Asker(ANONYMOUS))


def application(config: GatewayConfig, proxy: Gateway, routes: Routes) -> ASGIApp:
    """The ASGI application: the gateway at /mcp, behind whatever authenticates clients."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        await routes.open()
        try:
            async with proxy.running():
                yield
        finally:
            await routes.close()

    beside = [Route(health.PATH, endpoint=_health(routes), methods=["GET"])]
    if config.metrics:
        beside.append(Route("/metrics", endpoint=_metrics(proxy), methods=["GET"]))
    if config.auth is None:
        return _before(proxy, beside, lifespan)
    auth, resource = config.auth, AnyHttpUrl(config.auth.resource)
    required = [*auth.scopes]
    guarded = AuthContextMiddleware(RequireAuthMiddleware(proxy, required, build_resource_metadata_url(resource)))
    endpoint = verdicts.Heard(AuthenticationMiddleware(guarded, backend=BearerAuthBackend(_verifier(auth))))
    metadata = create_protected_resource_routes(resource, [AnyHttpUrl(auth.issuer)], required)
    return _before(endpoint, [*metadata, *beside], lifespan)


def _before(endpoint: Any, beside: list[Route], lifespan: Any) -> ASGIApp:
    """Both as one, the endpoint at /mcp and nothing around it: Starlette's layers cost a hop a twentieth of its time.

    And each stream that is listened to 4 KiB, since their frames last as long as it does.
    """
    # Named there too, for who comes with a slash at the end.
    others = Starlette(routes=[Route(_PATH, endpoint=endpoint), *beside], lifespan=lifespan)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        there = scope["type"] == "http" and scope["path"] == _PATH
        await (endpoint if there else others)(scope, receive, send)

    return app


def _metrics(proxy: Gateway) -> Callable[[Request], Response]:
    def metrics(_: Request) -> Response:
        return PlainTextResponse(proxy.exposition(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return metrics


def _health(routes: Routes) -> Callable[[Request], Awaitable[Response]]:
    """Whether this gateway is of use: without its table it finds no task. Its backends have a health of their own."""

    async def answer(_: Request) -> Response:
        with anyio.move_on_after(_PATIENCE):
            try:
                await routes.find_many(ANONYMOUS, ["none"])
            except StoreUnavailable:
                return PlainTextResponse("the route table does not answer\n", 503, {"Cache-Control": "no-store"})
            return PlainTextResponse("ok\n", 200, {"Cache-Control": "no-store"})
        return PlainTextResponse("the route table does not answer\n", 503, {"Cache-Control": "no-store"})

    return answer


def _verifier(auth: AuthConfig) -> TokenVerifier:
    """What the configuration names: a verifier, or a class or function that makes one."""
    module, _, name = auth.verifier.partition(":")
    sys.path.insert(0, "")
    try:
        found: Any = getattr(importlib.import_module(module), name)
        verifier: Any = found if hasattr(found, "verify_token") and not isinstance(found, type) else found()
    except Exception as error:  # noqa: BLE001 - the boundary to somebody else's module
        said = " ".join(str(error).split())
        raise ConfigurationError(
            f"auth.verifier: {auth.verifier} can't be had: {type(error).__name__}: {said}"
        ) from None
    if not hasattr(verifier, "verify_token"):
        raise ConfigurationError(f"auth.verifier: {auth.verifier} has no verify_token")
    return cast("TokenVerifier", verifier)
