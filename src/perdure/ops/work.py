"""A worker without a server: what an app's tasks need in order to run, and no port.

The app's own lifespan is entered as the server would enter it, so that a tool finds there what it finds in the server.
What is left of the server is its name.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import anyio
from mcp.server.mcpserver import MCPServer

from perdure.domain.errors import PerdureError
from perdure.engine.demand import Planner
from perdure.tools.declaration import CALL

from . import keys, logs, stores
from .assembly import Assembly, assembly_of
from .leaving import Leaving

__all__ = ["run"]

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def run(
    app: MCPServer[Any],
    *,
    store: str | None,
    log_level: str | None,
    concurrency: int | None,
    queues: Mapping[str, int | None] | None,
) -> None:
    """Run the tasks of `app` until told to stop.

    Raises:
        SystemExit: it can't start as asked; one line says why and what to do.
    """
    logs.configure(log_level)
    assembly = assembly_of(app)
    if assembly is None:
        raise SystemExit(
            "perdure: a worker needs a server with a Tasks, and this one has none: make it by tasks.server(name), or "
            "pass extensions=, middleware= and lifespan= to MCPServer"
        )
    try:
        assembly.attachment.check_parts(app)
        ring = keys.from_environment()
        assembly.configure(store=store, worker=True, concurrency=concurrency, queues=queues or None, keys=ring)
        if not assembly.catalog.handlers:
            raise SystemExit(f"perdure: {app.name} has no task tools to run: declare one with @tasks.tool()")
        assembly.check_queues()
        assembly.preflight()
        with Leaving() as leaving:
            anyio.run(leaving.last, _work(app, assembly))
    except PerdureError as error:
        raise SystemExit(f"perdure: {error}") from None


async def _work(app: MCPServer[Any], assembly: Assembly) -> None:
    with _told_to_stop() as told:
        async with assembly.working(app):
            print(_greeting(app, assembly), file=sys.stderr, flush=True)
            await told.wait()
            print(f"perdure: told to stop working for {app.name}", file=sys.stderr, flush=True)


@contextmanager
def _told_to_stop() -> Generator[asyncio.Event]:
    """An event that SIGTERM or Ctrl-C sets. A second one ends the process at once. In the main thread only.

    Plain handlers, not the loop's: they run also while a tool computes on the loop, where the second signal is the only
    way out.
    """
    loop, told = asyncio.get_running_loop(), asyncio.Event()

    def stop(_signum: int, _frame: FrameType | None) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        loop.call_soon_threadsafe(told.set)

    before = {each: signal.signal(each, stop) for each in _SIGNALS}
    try:
        yield told
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _greeting(app: MCPServer[Any], assembly: Assembly) -> str:
    options, handlers = assembly.options, assembly.catalog.handlers
    served = Planner(options.concurrency, options.queues).served(handlers)
    tools = ", ".join(name.removeprefix(f"{CALL}:") for name in served)
    queues = options.queues or dict.fromkeys(handlers[name].placement.queue for name in served)
    bounds = ", ".join(name if most is None else f"{name}={most}" for name, most in sorted(queues.items()))
    where, most = stores.described(assembly.named), options.concurrency
    return f"perdure: working for {app.name} on {where}, {most} at once: tools {tools}; queues {bounds}"
