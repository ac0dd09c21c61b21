"""Serving somebody's `MCPServer` as a program: options, the checks before the port opens, uvicorn.

`perdure serve module:app` and a file that ends in `perdure.serve(mcp)` are the same program.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import click
import uvicorn
from mcp.server.mcpserver import MCPServer

from perdure.domain.errors import StoreUnusable

from . import ports
from .app import declared_tasks

__all__ = ["run", "serve", "serve_options"]

_DRAIN_SECONDS = 5
"""How long open requests may go on once the server was told to stop; running tasks have their own grace after that."""
_JOIN_SECONDS = 0.5


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
    _configure(store, worker)
    if not stdio and app.settings.auth is None and not (allow_anonymous or _is_loopback(host)):
        raise SystemExit(
            f"perdure: {app.name} has no authentication, so anybody who reaches {host} could call it: "
            "configure auth=, listen on 127.0.0.1, or say --allow-anonymous"
        )
    for tasks in declared_tasks():
        tasks.preflight()
    if stdio:
        app.run("stdio")
    else:
        _serve_http(app, host, port)
    _leave_threads_behind()


def _serve_http(app: MCPServer[Any], host: str, port: int) -> None:
    sockets = ports.bind(host, port)
    if app.settings.auth is None:
        print("perdure: no authentication: whoever knows a task's id may read it", file=sys.stderr)
    where = f"[{host}]" if ":" in host else host
    print(
        f"perdure: serving {app.name} on http://{where}:{sockets[0].getsockname()[1]}/mcp", file=sys.stderr, flush=True
    )
    server = uvicorn.Server(
        uvicorn.Config(
            app.streamable_http_app(host=host), log_level="warning", timeout_graceful_shutdown=_DRAIN_SECONDS
        )
    )
    # After an orderly shutdown uvicorn raises the signal that asked for it again; for Ctrl-C that is this exception.
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets)


def _leave_threads_behind() -> None:
    """End the process though a tool still runs in a thread.

    Nobody can stop it, its task was handed over, and the interpreter would wait for it as long as it takes.
    """
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread() and not thread.daemon]
    for thread in others:
        thread.join(_JOIN_SECONDS / len(others))  # idle ones end by themselves
    if any(thread.is_alive() for thread in others):
        logging.shutdown()
        os._exit(0)


def _configure(store: str | None, worker: bool | None) -> None:
    found = declared_tasks()
    if store is not None and len(found) != 1:
        raise SystemExit(f"perdure: --store needs a program with one Tasks, and this one has {len(found)}")
    try:
        for tasks in found:
            tasks.configure(store=store, worker=worker)
    except StoreUnusable as error:
        raise SystemExit(f"perdure: {error}") from None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
