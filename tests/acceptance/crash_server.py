"""A server to be killed: tools of every kind, each of whose runs leaves its traces in a log outside the store.

    EFFECTS=effects.log python tests/acceptance/crash_server.py --port 8000 --store sqlite:///tasks.db

A run draws a token, writes it to the log when it begins and as the very last thing before it ends, and returns it; so
the stored result names the one run that counts. A line is one write, appended and synced. LEASE and GRACE in the
environment are durations.
"""

import asyncio
import contextlib
import json
import os
import secrets
import time
from pathlib import Path
from typing import Any, Final

from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from pydantic import BaseModel

from perdure import Elicit, SyncTaskContext, TaskContext, Tasks, serve

EFFECTS: Final = os.environ["EFFECTS"]
MCP_ERROR: Final = -31999
Result = dict[str, Any]

tasks = Tasks("sqlite:///tasks.db", lease=os.environ.get("LEASE", "30s"), grace=os.environ.get("GRACE", "10s"))
mcp = tasks.server("crash", version="1.0")
# Each kill of the server is a worker's death to every task that runs.
tool = tasks.tool(max_attempts=1000, poll_interval="100ms")


class Text(BaseModel):
    text: str


class Run:
    """The traces of one run of a tool."""

    def __init__(self, task: TaskContext | SyncTaskContext) -> None:
        self._task = task
        self.token = secrets.token_hex(8)
        self.note("start")

    def note(self, event: str) -> None:
        line = {
            "event": event,
            "task": self._task.id,
            "token": self.token,
            "pid": os.getpid(),
            "attempt": self._task.attempt,
        }
        log = os.open(EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(log, json.dumps(line).encode() + b"\n")
            os.fsync(log)
        finally:
            os.close(log)

    def end(self, **result: object) -> Result:
        self.note("end")
        return {"token": self.token, **result}


def opened(gate: str) -> bool:
    return Path(gate).exists() or Path(f"{gate}.{os.getpid()}").exists()


@tool
async def short(label: str, task: TaskContext) -> Result:
    run = Run(task)
    await asyncio.sleep(0.01)
    return run.end()


@tool
async def long(label: str, seconds: float, task: TaskContext) -> Result:
    run = Run(task)
    await asyncio.sleep(seconds)
    return run.end()


@tool
async def waiting(label: str, gate: str, task: TaskContext) -> Result:
    """Wait until the file `gate` is there, or one that ends in this process's id."""
    run = Run(task)
    while not opened(gate):  # noqa: ASYNC110 - by another process
        await asyncio.sleep(0.01)
    return run.end()


@tool
def threaded(label: str, seconds: float, task: SyncTaskContext) -> Result:
    run = Run(task)
    time.sleep(seconds)
    return run.end()


@tool
def gated(label: str, gate: str, task: SyncTaskContext) -> Result:
    """As `waiting`, in a thread, which nobody can interrupt."""
    run = Run(task)
    while not opened(gate):
        time.sleep(0.01)
    return run.end()


async def never_cancelled(gate: str) -> None:
    while not opened(gate):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.01)


@tool
async def deaf(label: str, gate: str, task: TaskContext) -> Result:
    """As `waiting`, and does not stop when told to."""
    run = Run(task)
    await never_cancelled(gate)
    return run.end()


orphans: set[asyncio.Task[None]] = set()


@tool
async def parent(label: str, gate: str, task: TaskContext) -> Result:
    """Leave an asyncio task behind, of the deaf kind."""
    run = Run(task)
    orphans.add(asyncio.create_task(never_cancelled(gate)))
    return run.end()


@tool
async def one_question(label: str, task: TaskContext) -> Result:
    run = Run(task)
    answer = await task.elicit("name", f"{label}: your name?", Text)
    await asyncio.sleep(0.05)
    return run.end(answers={"name": answer.data and answer.data.text})


async def introduced(ctx: Context[Any, Any]) -> str | InputRequiredResult:
    """Asks for a name before there is a task."""
    if ctx.input_responses:
        said = ctx.input_responses["name"]
        return str(said.content["text"]) if isinstance(said, ElicitResult) and said.content else ""
    question = ElicitRequestFormParams(message="Your name?", requested_schema=Text.model_json_schema())
    return InputRequiredResult(input_requests={"name": ElicitRequest(params=question)}, request_state="asked")


@tasks.tool(max_attempts=1000, poll_interval="100ms", prepare=introduced)
async def question_before(label: str, task: TaskContext) -> Result:
    return Run(task).end(answers={"name": task.prepared})


@tool
async def three_questions(label: str, task: TaskContext) -> Result:
    run = Run(task)
    both = await task.ask({"left": Elicit(f"{label}: left?", Text), "right": Elicit(f"{label}: right?", Text)})
    answers = {key: answer.data and answer.data.text for key, answer in both.items()}
    last = await task.elicit("last", f"{label}: and after {answers['left']} and {answers['right']}?", Text)
    return run.end(answers={**answers, "last": last.data and last.data.text})


@tool
async def tool_error(label: str, task: TaskContext) -> Result:
    run = Run(task)
    await asyncio.sleep(0.05)
    run.note("end")
    task.decline(run.token)


@tool
async def mcp_error(label: str, task: TaskContext) -> Result:
    run = Run(task)
    await asyncio.sleep(0.05)
    run.note("end")
    raise MCPError(MCP_ERROR, run.token, {"label": label})


@tool
async def progress(label: str, steps: int, task: TaskContext) -> Result:
    run = Run(task)
    for step in range(steps):
        await task.report(f"{step} of {steps}")
        await asyncio.sleep(0.05)
    return run.end()


@tool
async def cancellable(label: str, seconds: float, stubborn: bool, task: TaskContext) -> Result:
    """Stop when told to; if `stubborn`, by returning what there is."""
    run = Run(task)
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        await asyncio.sleep(0.05)
        run.note("told to stop")
        if not stubborn:
            raise
    return run.end()


if __name__ == "__main__":
    serve(mcp)
