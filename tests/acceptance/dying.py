"""Workers that die at each step of a tool in turn: one process after the other, each of which gets one step further.

    python -m tests.acceptance.dying sqlite:///tasks.db

The process that is started loads everything and runs nothing, so that each worker is a fork of it, which takes
milliseconds; a fork takes over neither threads nor open stores, so there must be none yet. It ends with the first
worker that does not die, and prints how many did.

What a step does is a line in the file `effects` of the folder that the tool is told, one write, appended: step and
process. A step that has cost a life is a line in `struck`, so that it costs no other.
"""

import asyncio
import gc
import importlib
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Final, NoReturn

from perdure import StepInterrupted, TaskContext, Tasks

STEPS: Final = 100
_LIFE: Final = 60
"""Seconds after which a worker that neither dies nor ends is ended."""

tasks = Tasks("sqlite:///tasks.db")
mcp = tasks.server("dying", version="1.0", log_level="WARNING")  # each worker takes over, and would say so
tool = tasks.tool(max_attempts=2 * STEPS, poll_interval="100ms")
over = asyncio.Event()
"""Set by a tool that has come to its end."""


class Fate:
    """What becomes of the steps, and of the processes that they run in."""

    def __init__(self, folder: str) -> None:
        self._effects, self._struck = Path(folder, "effects"), Path(folder, "struck")

    def effect(self, step: int) -> None:
        append(self._effects, f"{step} {os.getpid()}")

    def strike(self, step: int) -> None:
        """End this process at once, the first time for each step."""
        if str(step) not in self._struck.read_text().splitlines():
            append(self._struck, str(step))
            os.kill(os.getpid(), signal.SIGKILL)


def append(log: Path, line: str) -> None:
    file = os.open(log, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


@tool
async def killed_after(folder: str, task: TaskContext) -> int:
    """The worker dies after each step, which is on record."""
    fate = Fate(folder)

    async def act(step: int) -> int:
        fate.effect(step)
        return step

    total = 0
    for step in range(STEPS):
        total += await task.step(f"step {step}", act, step)
        fate.strike(step)
    over.set()
    return total


@tool
async def killed_within(folder: str, task: TaskContext) -> list[int]:
    """The worker dies within each step, which has had its effect and is not on record; every other runs at most once.

    Returns those that the tool was told of.
    """
    fate = Fate(folder)

    async def act(step: int) -> None:
        fate.effect(step)
        fate.strike(step)

    interrupted: list[int] = []
    for step in range(STEPS):
        try:
            await task.step(f"step {step}", act, step, at_most_once=step % 2 == 1)
        except StepInterrupted:
            interrupted.append(step)
    over.set()
    return interrupted


async def work() -> None:
    """Work until a tool has come to its end, and let its task finish."""
    async with tasks.assembly.working(mcp):
        await over.wait()


def live() -> int:
    """The exit code of one more worker; of one that was killed, minus the signal."""
    child = os.fork()
    if not child:
        worker()
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def worker() -> NoReturn:
    code = 1
    try:
        signal.alarm(_LIFE)
        asyncio.run(work())
        code = 0
    except BaseException:  # noqa: BLE001 - a fork must not go on in what its parent was about
        traceback.print_exc()
    finally:
        os._exit(code)


def main(store: str) -> int:
    tasks.configure(store=store)
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a fork would not have these threads"
    importlib.import_module("anyio._backends._asyncio")  # which anyio leaves to the first loop: half of a worker's life
    gc.freeze()
    deaths = 0
    while (code := live()) == -signal.SIGKILL and deaths < 2 * STEPS:
        deaths += 1
    print(deaths)
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
