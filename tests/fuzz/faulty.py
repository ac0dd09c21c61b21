"""A server as `fuzz.app`, with the faults that the oracle is there for.

Each shows when a task of that name is asked for; one with a task that there is, and one at each refused cancel as well,
which targets try by themselves.

`perdure serve tests.fuzz.faulty:mcp`
"""

import asyncio
import logging
import os
import traceback
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError

from fuzz.app import AUTH, Tokens, declare
from fuzz.people import ADA, PEOPLE, task_id
from perdure import Owner, Tasks

logger = logging.getLogger(__name__)

tasks = Tasks("sqlite:///faulty.db", lease="1h", grace="1ms", tenant_claim="org")


async def write() -> None:
    """Cancel a task that nobody wants cancelled."""
    await tasks.assembly.runtime.store.request_cancel(Owner("acme", '[null,"fuzz","ada"]'), task_id(ADA, "waiting"))


async def faults(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    fault = "leak" if ctx.method == "tasks/cancel" else (ctx.params or {}).get("taskId")
    try:
        result = await call_next(ctx)
        if fault == task_id(ADA, "large"):
            await write()
        return result
    except MCPError as error:
        match fault:
            case "leak":
                raise MCPError(error.code, traceback.format_exc()) from error
            case "foreign":
                raise MCPError(error.code, PEOPLE[1].canary) from error
            case "hang":
                await asyncio.Event().wait()
            case "log":
                logger.exception("whatever that is")
            case "write":
                await write()
            case "die":
                os._exit(1)
            case _:
                pass
        raise


mcp = tasks.server("faulty", version="1.0", auth=AUTH, token_verifier=Tokens(), middleware=[faults])
tasks.callbacks(mcp)
declare(tasks)
