"""Our backend: `perdure serve chaos.gateway.ours:mcp`. Whose a task is, the gateway says in a header that it signs."""

from __future__ import annotations

import asyncio
import os

from pydantic import BaseModel

from perdure import TaskContext, Tasks
from perdure.gateway.identity import Key, signed_identity

SECRET = os.environ["CHAOS_SECRET"].encode()


class Label(BaseModel):
    label: str


tasks = Tasks(
    "sqlite:///tasks.db",
    lease="2s",
    grace="2s",
    linger="30d",
    identify=signed_identity(audience="ours", issuer="front", keys=[Key.shared("one", SECRET)]),
    owner_tasks=None,
    tenant_backlog=None,
)
mcp = tasks.server("ours", version="1")
tool = tasks.tool(max_attempts=1000, poll_interval="100ms")


@tool
async def work(label: str, seconds: float) -> Label:
    await asyncio.sleep(seconds)
    return Label(label=label)


@tool
async def ask(label: str, seconds: float, task: TaskContext) -> Label:
    await asyncio.sleep(seconds)
    await task.elicit("name", "Which label?", Label)
    return Label(label=label)
