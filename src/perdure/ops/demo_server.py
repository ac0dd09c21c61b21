"""The server of `perdure demo`: one tool whose work takes long enough to be watched, and to be killed in the middle.

Run as `python -m perdure.ops.demo_server --port 8000 --store sqlite:///demo.db`.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel

from perdure.tools.context import TaskContext

from .app import Tasks
from .serve import serve

__all__ = ["mcp"]

_DRAFTING, _WRITING = 2.0, 0.5  # seconds

tasks = Tasks("sqlite:///demo.db")
mcp = tasks.server("perdure-demo", version="1.0")


class Approval(BaseModel):
    """What a person is asked."""

    approved: bool


class Report(BaseModel):
    """What the report says of itself."""

    size: str
    approved: bool


@tasks.tool(ttl="15m", poll_interval="3s")
async def generate_report(size: str, task: TaskContext) -> Annotated[CallToolResult, Report]:
    """Write a report; a person approves its outline first."""
    outline = f"1. A {size} introduction  2. Findings  3. What to do"
    await asyncio.sleep(_DRAFTING)  # what comes before a question runs again once it is answered
    await task.report("The outline is ready.")
    answer = await task.elicit("approve_outline", f"Approve this outline? {outline}", Approval)
    if answer.data is None or not answer.data.approved:
        task.decline("The outline was not approved.")
    await asyncio.sleep(_WRITING)
    report = Report(size=size, approved=True)
    text = TextContent(type="text", text=f"A {size} report, along the approved outline: {outline}")
    return CallToolResult(content=[text], structured_content=report.model_dump())


if __name__ == "__main__":
    serve(mcp)
