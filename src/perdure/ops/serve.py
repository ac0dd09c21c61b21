"""Serving somebody's `MCPServer` as a program: options, the checks before the port opens, uvicorn.

`perdure serve module:app` and a file that ends in `perdure.serve(mcp)` are the same program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import click
from mcp.server.mcpserver import MCPServer

from perdure.domain.errors import PerdureError

from . import exposure, health, http, keys, loaded, logs, ports, stdin, verdicts
from .assembly import Assembly, assembly_of
from .discretion import Command
from .leaving import Leaving
from .options import STORE, served_queues, serving, working

__all__ = ["run", "serve"]


def serve(app: MCPServer[Any], argv: Sequence[str] | None = None) -> None:
    """Serve `app` as a program of its own: the last line of a file. Reads the options of `perdure serve` from `argv`.

    Raises:
        SystemExit: always, once the server has stopped; with one line if it could not start.
    """

    @click.command(cls=Command, help=f"Serve {app.name} over MCP.")
    @serving
    @working
    def program(**options: Any) -> None:
        run(app, **options)

    if argv is None:
        loaded.keep()
    program(None if argv is None else list(argv))


def run(
    app: MCPServer[Any],
    *,
    host: str,
    port: int,
    store: str | None,
    worker: bool | None,
    stdio: bool,
    allow_anonymous: bool,
    log_level: str | None,
    concurrency: int | None,
    queues: tuple[str, ...],
) -> None:
    """Serve until told to stop.

    Raises:
        SystemExit: it can't start as asked; one line says why and what to do.
    """
    logs.configure(log_level)
    assembly = assembly_of(app)
    _configure(app, assembly, store=store, worker=worker, concurrency=concurrency, queues=served_queues(queues) or None)
    if not stdio:
        allowed = allow_anonymous or (assembly is not None and assembly.allow_anonymous)
        exposure.refuse(app, host, allowed=allowed, say="--allow-anonymous")
    if assembly is not None:
        assembly.preflight()
    if stdio:
        _serve_stdio(app, assembly)
    else:
        _serve_http(app, assembly, host, port)


def _serve_stdio(app: MCPServer[Any], assembly: Assembly | None) -> None:
    last = _nothing if assembly is None else assembly.end_subscriptions
    with stdin.ends_when_told(last), Leaving() as leaving:
        # Not `app.run`, which would look at the store once more.
        anyio.run(leaving.last, app.run_stdio_async())


def _serve_http(app: MCPServer[Any], assembly: Assembly | None, host: str, port: int) -> None:
    sockets = ports.bind(host, port)
    exposure.warn(app)
    http.announce(app.name, host, sockets)
    told, bounds = _nothing, dict[str, Any]()
    if assembly is not None:
        assembly.warn_of_keys()
        told = assembly.stop_working
        bounds["max_request_body_size"] = assembly.options.limits.request_body
        health.offer(app, assembly)
    with Leaving() as leaving:
        http.listen(
            verdicts.heard(app.streamable_http_app(host=host, **bounds)),
            sockets,
            log_level="warning",
            log_config=None,
            told=told,
            last=leaving.last,
        )


def _nothing() -> None:
    """There is nobody to tell."""


def _configure(app: MCPServer[Any], assembly: Assembly | None, **options: Any) -> None:
    """Hand the options that are given on to the tasks, which must be all there, with the keys of the environment."""
    if assembly is None:
        for option in ("store", "concurrency", "queues"):
            if options[option] is not None:
                said = f"--store, or {STORE}," if option == "store" else f"--{option.removesuffix('s')}"
                raise SystemExit(f"perdure: {said} needs a server with a Tasks, and this one has none")
        return
    try:
        assembly.attachment.check_parts(app)
        assembly.configure(**options, keys=keys.from_environment())
        if options["queues"] is not None:
            assembly.check_queues()
    except PerdureError as error:
        raise SystemExit(f"perdure: {error}") from None
