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
from perdure.wire.tools import CALL

from . import logs, stores
from .app import Tasks, tasks_of
from .leaving import Leaving

__all__ = ["run"]

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def run(
    app: MCPServer[Any], *, store: str | None, concurrency: int | None, queues: Mapping[str, int | None] | None
) -> None:
    """Run the tasks of `app` until told to stop.

    Raises:
        SystemExit: it can't start as asked; one line says why and what to do.
    """
    logs.configure()
    tasks = tasks_of(app)
    if tasks is None:
        raise SystemExit(
            "perdure: a worker needs a server with a Tasks, and this one has none: make it by tasks.server(name), or "
            "pass extensions=, middleware= and lifespan= to MCPServer"
        )
    try:
        tasks.check_parts(app)
        tasks.configure(store=store, worker=True, concurrency=concurrency, queues=queues or None)
        if not tasks.handlers:
            raise SystemExit(f"perdure: {app.name} has no task tools to run: declare one with @tasks.tool()")
        tasks.check_queues()
        tasks.preflight()
        with Leaving() as leaving:
            anyio.run(leaving.last, _work(app, tasks))
    except PerdureError as error:
        raise SystemExit(f"perdure: {error}") from None


async def _work(app: MCPServer[Any], tasks: Tasks) -> None:
    with _told_to_stop() as told:
        async with tasks.working(app):
            print(_greeting(app, tasks), file=sys.stderr, flush=True)
            await told.wait()


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


def _greeting(app: MCPServer[Any], tasks: Tasks) -> str:
    served = Planner(tasks.engine.concurrency, tasks.engine.queues).served(tasks.handlers)
    tools = ", ".join(name.removeprefix(f"{CALL}:") for name in served)
    queues = tasks.engine.queues or dict.fromkeys(tasks.handlers[name].placement.queue for name in served)
    bounds = ", ".join(name if most is None else f"{name}={most}" for name, most in sorted(queues.items()))
    where, most = stores.described(tasks.named), tasks.engine.concurrency
    return f"perdure: working for {app.name} on {where}, {most} at once: tools {tools}; queues {bounds}"
