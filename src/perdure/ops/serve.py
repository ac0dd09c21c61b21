"""Serving somebody's `MCPServer` as a program: options, the checks before the port opens, uvicorn.

`perdure serve module:app` and a file that ends in `perdure.serve(mcp)` are the same program.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import click
from mcp.server.mcpserver import MCPServer

from perdure.domain.errors import StoreUnusable

from . import exposure, http, ports, stdin
from .app import Tasks, tasks_of
from .leaving import Leaving

__all__ = ["run", "serve", "serve_options"]


def serve_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of every command that serves."""
    options = [
        click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on."),
        click.option(
            "--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="Port to listen on."
        ),
        click.option("--store", help="Store URL, instead of what the program says: sqlite:///tasks.db"),
        click.option("--worker/--no-worker", default=None, help="Run tasks in this process, or only serve requests."),
        click.option("--stdio", is_flag=True, help="Speak MCP over standard input and output instead of HTTP."),
        click.option(
            "--allow-anonymous",
            is_flag=True,
            help="Listen beyond this machine though the server has no authentication.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def serve(app: MCPServer[Any], argv: Sequence[str] | None = None) -> None:
    """Serve `app` as a program of its own: the last line of a file. Reads the options of `perdure serve` from `argv`.

    Raises:
        SystemExit: always, once the server has stopped; with one line if it could not start.
    """

    @click.command(help=f"Serve {app.name} over MCP.")
    @serve_options
    def program(**options: Any) -> None:
        run(app, **options)

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
) -> None:
    """Serve until told to stop.

    Raises:
        SystemExit: it can't start as asked; one line says why and what to do.
    """
    tasks = tasks_of(app)
    _configure(tasks, store, worker)
    if not stdio:
        allowed = allow_anonymous or (tasks is not None and tasks.allow_anonymous)
        exposure.refuse(app, host, allowed=allowed, say="--allow-anonymous")
    if tasks is not None:
        tasks.preflight()
    if stdio:
        _serve_stdio(app)
    else:
        _serve_http(app, tasks, host, port)


def _serve_stdio(app: MCPServer[Any]) -> None:
    with stdin.ends_when_told(), Leaving() as leaving:
        # Not `app.run`, which would look at the store once more.
        anyio.run(leaving.last, app.run_stdio_async())


def _serve_http(app: MCPServer[Any], tasks: Tasks | None, host: str, port: int) -> None:
    sockets = ports.bind(host, port)
    exposure.warn(app)
    where = f"[{host}]" if ":" in host else host
    print(
        f"perdure: serving {app.name} on http://{where}:{sockets[0].getsockname()[1]}/mcp", file=sys.stderr, flush=True
    )
    told = _nothing if tasks is None else tasks.stop_working
    with Leaving() as leaving:
        http.listen(app.streamable_http_app(host=host), sockets, log_level="warning", told=told, last=leaving.last)


def _nothing() -> None:
    """There is no worker to tell."""


def _configure(tasks: Tasks | None, store: str | None, worker: bool | None) -> None:
    if tasks is None:
        if store is not None:
            raise SystemExit("perdure: --store needs a server with a Tasks, and this one has none")
        return
    try:
        tasks.configure(store=store, worker=worker)
    except StoreUnusable as error:
        raise SystemExit(f"perdure: {error}") from None
