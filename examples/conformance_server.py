"""The server that the official conformance suite is run against: the core fixtures, and seven tools for tasks.

    python examples/conformance_server.py --port 8000 --store sqlite:////tmp/tasks.db [--no-worker] [--legacy]

serves `/mcp` on 127.0.0.1. The scenarios call the tools by name and look at little more than statuses, so each tool
does the least that shows its behaviour. A tool that asks is run again from its start once it is answered, and any tool
may be run again after a crash: nothing here keeps state of its own or has an effect outside its task.
"""

import argparse

import anyio
from conformance_core import add_core, core_tools
from conformance_handshake import RETRY_AFTER_MS, Memory, acknowledge, add_handshake
from conformance_questions import accepted, ask_form
from mcp.server.mcpserver import Context, MCPServer, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, InputRequiredResult
from pydantic import BaseModel

from perdure import Elicit, TaskContext, Tasks

# Fixed, so that a question asked by one process of this fixture can be answered to the next. A real server loads a
# secret.
REQUEST_STATE_KEY = b"conformance-fixture: not a secret"


class Confirmation(BaseModel):
    confirm: bool


class Entry(BaseModel):
    """Both fields have defaults because the suite answers both questions with the same content."""

    name: str = ""
    confirm: bool = False


def greet(name: str) -> str:
    """Greet by name, at once: a plain tool is never a task."""
    return f"Hello, {name}!"


async def slow_compute(seconds: float, label: str, task: TaskContext) -> str:
    """Take a given time. Cancelling the task interrupts the sleep."""
    await task.report(f"computing {label}")
    await anyio.sleep(seconds)
    return f"{label}: computed for {seconds:g} s"


async def failing_job(task: TaskContext) -> str:
    """Work for a second, then give up: the tool's error, so the task completes."""
    await anyio.sleep(1)
    task.decline("This job always fails.")


async def protocol_error_job() -> str:
    """Break down with a JSON-RPC error: the task fails."""
    await anyio.sleep(0.1)
    raise MCPError(INTERNAL_ERROR, "This job always breaks down.")


async def confirm_delete(filename: str, task: TaskContext) -> str:
    """Ask before deleting (nothing is deleted)."""
    answer = await task.elicit("confirm", f"Delete {filename}?", Confirmation)
    if answer.data is not None and answer.data.confirm:
        return f"Deleted {filename}"
    return f"Kept {filename}"


async def multi_input(task: TaskContext) -> str:
    """Ask two questions at once; they may be answered one at a time."""
    answers = await task.ask({"first": Elicit("The first entry?", Entry), "second": Elicit("The second entry?", Entry)})
    return f"Took {len(answers)} entries."


async def ask_user_name(ctx: Context) -> str | InputRequiredResult:
    """What `test_tool_with_task` wants to know while it is still an ordinary request."""
    form = accepted(ctx, "user_name")
    if form is None:
        return InputRequiredResult(input_requests={"user_name": ask_form("What is your name?", name="string")})
    return str(form.get("name"))


async def test_tool_with_task(task: TaskContext) -> str:
    """Greet, as a task, the user whose name was asked before there was one."""
    return f"Hello, {task.prepared}!"


def build(store: str, *, worker: bool = True, legacy: bool = False) -> MCPServer:
    """The fixture server on the store at `store`; with `worker` it runs its own tasks."""
    tasks = Tasks(store, worker=worker, legacy=legacy)
    security = RequestStateSecurity(keys=[REQUEST_STATE_KEY])
    # The core tools go through the constructor to be listed first: the suite calls the first tool without arguments.
    mcp = tasks.server(
        "conformance", version="1.0", tools=core_tools(), middleware=[acknowledge], request_state_security=security
    )
    add_core(mcp)
    add_handshake(mcp)
    mcp.tool()(greet)
    for function in (slow_compute, protocol_error_job, confirm_delete, multi_input):
        tasks.tool(poll_interval="200ms")(function)
    tasks.tool(mode="task", poll_interval="200ms")(failing_job)
    tasks.tool(mode="task", poll_interval="200ms", prepare=ask_user_name)(test_tool_with_task)
    return mcp


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve the conformance fixtures on 127.0.0.1.")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--store", required=True, help="store URL, for example sqlite:////tmp/tasks.db")
    parser.add_argument("--worker", action=argparse.BooleanOptionalAction, default=True, help="run tasks here")
    parser.add_argument("--legacy", action="store_true", help="serve the tasks of 2025-11-25 too")
    options = parser.parse_args()
    mcp = build(options.store, worker=options.worker, legacy=options.legacy)
    mcp.run("streamable-http", port=options.port, event_store=Memory(), retry_interval=RETRY_AFTER_MS)


if __name__ == "__main__":
    main()
