"""The tools that the storm runs: `perdure serve chaos.app:mcp`, `perdure worker chaos.app:mcp`.

CHAOS_LEASE and CHAOS_GRACE are durations.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
import signal
import time
from typing import Any, Final, NoReturn

from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError

from perdure import Owner, Retry, StepFailed, SyncTaskContext, TaskContext, Tasks

from .history import FAILED, TENANT_HEADER, WATCHED
from .kinds import ATTEMPTS, BRIEF, DEATHS, TRIES, TWICE
from .traced import Result, Run, asked, failing, handed_over, slept, stepped

MCP_ERROR: Final = -31999


def by_header(ctx: ServerRequestContext[Any, Any]) -> Owner:
    """Whose request it is: what no real server may believe."""
    assert ctx.request is not None
    return Owner(ctx.request.headers.get(TENANT_HEADER, ""), "chaos")


tasks = Tasks(
    "sqlite:///tasks.db",
    lease=os.environ.get("CHAOS_LEASE", "2s"),
    grace=os.environ.get("CHAOS_GRACE", "2s"),
    cleanup="2s",
    linger="30d",  # a clock that jumps must not purge what is still to be judged
    identify=by_header,
    owner_tasks=None,  # a few owners make all the load that there is
    tenant_backlog=None,
)
mcp = tasks.server("chaos", version="1.0")
tasks.callbacks(mcp)
# A storm is a worker's death to every task that runs, again and again; these tools are not to blame for it.
tool = tasks.tool(max_attempts=1000, poll_interval="100ms")


# -- without steps -----------------------------------------------------------------------------------------------------


@tool
async def compute(label: str, seconds: float, task: TaskContext) -> Result:
    run = Run(task, label)
    await asyncio.sleep(seconds)
    return run.end()


@tool
def threaded(label: str, seconds: float, task: SyncTaskContext) -> Result:
    run = Run(task, label)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        task.checkpoint()
        time.sleep(0.05)
    return run.end()


@tool
async def progress(label: str, rounds: int, task: TaskContext) -> Result:
    run = Run(task, label)
    for number in range(rounds):
        await task.report(f"{number} of {rounds}")
        await asyncio.sleep(0.1)
    return run.end()


@tool
async def stubborn(label: str, seconds: float, task: TaskContext) -> Result:
    """Return what there is when told to stop."""
    run = Run(task, label)
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(seconds)
    return run.end()


@tasks.tool(max_attempts=1000, poll_interval="100ms", ttl=f"{BRIEF}s")
async def brief(label: str, seconds: float, task: TaskContext) -> Result:
    """Have a short life, which a clock that is set forward ends at once."""
    run = Run(task, label)
    await asyncio.sleep(seconds)
    return run.end()


@tool
async def tool_error(label: str, task: TaskContext) -> Result:
    run = Run(task, label)
    await asyncio.sleep(0.1)
    run.note("end")
    task.decline(run.token)


@tool
async def mcp_error(label: str, task: TaskContext) -> Result:
    run = Run(task, label)
    await asyncio.sleep(0.1)
    run.note("end")
    raise MCPError(MCP_ERROR, run.token, {"label": label})


# -- questions ---------------------------------------------------------------------------------------------------------


@tool
async def one_question(label: str, task: TaskContext) -> Result:
    run = Run(task, label)
    await asked(run, task, label, "name")
    await asyncio.sleep(0.2)
    return run.end()


@tool
async def three_questions(label: str, task: TaskContext) -> Result:
    run = Run(task, label)
    answers = await asked(run, task, label, "left", "right")
    await asked(run, task, f"{label}, after {answers['left']} and {answers['right']}", "last")
    return run.end()


@tool
async def impatient(label: str, seconds: float, task: TaskContext) -> Result:
    """Go on without an answer after a while."""
    run = Run(task, label)
    await asked(run, task, label, "soon", "sooner", within=seconds)
    await asked(run, task, label, "late")
    return run.end()


# -- steps and timers --------------------------------------------------------------------------------------------------


@tool
async def stairs(label: str, steps: int, task: TaskContext) -> Result:
    run = Run(task, label)
    for number in range(steps):
        await stepped(run, task, f"step {number}", once=number % 3 == 2)
    await failing(run, task, "the last")
    return run.end()


@tool
def errand(label: str, seconds: float, task: SyncTaskContext) -> Result:
    """Steps of a plain function, in threads."""
    run = Run(task, label)

    def work(name: str) -> str:
        run.note("step", name)
        time.sleep(seconds)
        return secrets.token_hex(4)

    for name in ("there", "back"):
        run.passed(name, task.step(name, work, name))
        task.sleep("200ms")
    return run.end()


@tool
async def nap(label: str, seconds: float, task: TaskContext) -> Result:
    run = Run(task, label)
    await stepped(run, task, "lie down")
    await slept(run, task, "nap", seconds)
    await stepped(run, task, "get up")
    return run.end()


@tool
async def order(label: str, task: TaskContext) -> Result:
    """Everything in a row, as a tool that matters has it."""
    run = Run(task, label)
    await stepped(run, task, "reserve", 0.8)
    await asked(run, task, label, "approve")
    await stepped(run, task, "charge", 1.2, once=True)
    await slept(run, task, "wait", 0.5)
    await stepped(run, task, "ship", 0.8)
    return run.end()


@tool
async def fan_out(label: str, task: TaskContext) -> Result:
    """Everything side by side."""
    run = Run(task, label)

    async def rest() -> None:
        await slept(run, task, "rest", 0.7)
        await stepped(run, task, "rested")

    await task.gather(
        stepped(run, task, "left", 1.5),
        stepped(run, task, "right", 1, once=True),
        asked(run, task, label, "meanwhile"),
        rest(),
    )
    await stepped(run, task, "together")
    return run.end()


# -- errors ------------------------------------------------------------------------------------------------------------

retried = tasks.tool(
    max_attempts=1000, poll_interval="100ms", retry=Retry(ATTEMPTS, backoff="200ms", on=(ConnectionError, ToolError))
)


@retried
async def fickle(label: str, failures: int, inside: bool, task: TaskContext) -> Result:
    """Fail in the first attempts. A worker's death is an attempt as well, so there may be fewer failures."""
    run = Run(task, label)
    fails = task.attempt <= failures

    def work() -> str:
        run.note("step", "fragile")
        if fails:
            run.note("fail", "fragile")
            raise ConnectionError(FAILED)
        return secrets.token_hex(4)

    await stepped(run, task, "before")
    if inside:
        run.passed("fragile", await task.step("fragile", work))
    elif fails:
        run.note("fail")
        raise ConnectionError(FAILED)
    await stepped(run, task, "after")
    return run.end()


@retried
async def hopeless(label: str, inside: bool, task: TaskContext) -> Result:
    """Fail in each attempt."""
    run = Run(task, label)

    def fail() -> NoReturn:
        run.note("fail", "fragile")
        run.note("end")
        raise ToolError(run.token)

    await stepped(run, task, "before", 0.5)
    await asyncio.sleep(0.5)
    if inside:
        await task.step("fragile", fail)
    fail()


@tool
async def persistent(label: str, odds: float, pause: float, task: TaskContext) -> Result:
    """Have a step that fails or hangs, by chance or always, and is tried again on its own."""
    run = Run(task, label)

    async def work() -> str:
        run.note("step", "fragile")
        if random.random() < odds:
            run.note("fail", "fragile")
            if random.random() < 0.5:
                await asyncio.sleep(30)
            raise ConnectionError(FAILED)
        return secrets.token_hex(4)

    await stepped(run, task, "before", 0.1)
    try:
        value = await task.step("fragile", work, retry=Retry(TRIES, backoff=pause, factor=1.2), timeout="400ms")
    except StepFailed:
        value = FAILED
    run.passed("fragile", value)
    return run.end()


@tasks.tool(max_attempts=1000, poll_interval="100ms", timeout="1s", retry=Retry(TWICE, backoff="200ms"))
async def overdue(label: str, seconds: float, deaf: bool, task: TaskContext) -> Result:
    """Take too long, and be cancelled for it, which some do not heed."""
    run = Run(task, label)
    await stepped(run, task, "before", 0.1)
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        if not deaf:
            raise
        await asyncio.sleep(seconds)
    return run.end()


@tasks.tool(max_attempts=DEATHS, poll_interval="100ms")
async def poison(label: str, task: TaskContext) -> Result:
    """Kill the worker."""
    run = Run(task, label)
    run.note("kill")
    os.kill(os.getpid(), signal.SIGKILL)
    return run.end()


# -- other systems -----------------------------------------------------------------------------------------------------


@tool
async def outsourced(label: str, minds: bool, task: TaskContext) -> Result:
    run = Run(task, label)
    await handed_over(run, task, "work", minds=minds)
    await stepped(run, task, "after")
    return run.end()


@tool
async def watchful(label: str, minds: bool, task: TaskContext) -> Result:
    """Look now and then for what the other system has come to, and for a second one at the same time."""
    run = Run(task, label)
    await task.gather(
        handed_over(run, task, WATCHED, minds=minds, watched=True),
        handed_over(run, task, "work", minds=False),
    )
    return run.end()


@tool
async def hurried(label: str, seconds: float, task: TaskContext) -> Result:
    """Go on without the other system after a while; beside something else."""
    run = Run(task, label)
    await task.gather(
        handed_over(run, task, "work", seconds, minds=True),
        stepped(run, task, "meanwhile", 0.5),
    )
    await stepped(run, task, "after")
    return run.end()
