"""A process that is gone needs somebody who did it."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

from chaos.processes import WORKER, Fleet
from tests.support import eventually


async def nobody() -> set[int]:
    """Who has a lease."""
    return set()


async def killed(folder: Path, poisoned: Callable[[int], bool]) -> Fleet:
    """A fleet whose only process was killed by somebody else."""
    environment = {"CHAOS_JOURNAL": str(folder / "journal")}
    fleet = Fleet([WORKER], folder, lambda _: f"sqlite:///{folder}/tasks.db", nobody, environment, poisoned)
    (seat,) = fleet.seats
    fleet.begin()
    try:
        await eventually(lambda: seat.alive, "the process does not start")
        assert seat.process is not None
        os.kill(seat.process.pid, signal.SIGKILL)
        await eventually(lambda: bool(fleet.wrong or fleet.poisonings), "nobody noticed")
    finally:
        await fleet.close()
    return fleet


async def test_a_process_that_dies_by_itself_is_noted(tmp_path: Path) -> None:
    fleet = await killed(tmp_path, lambda pid: False)
    assert "worker-0 ended with status -9" in fleet.wrong[0]
    assert not fleet.poisonings


async def test_a_process_that_a_tool_kills_is_no_wonder(tmp_path: Path) -> None:
    fleet = await killed(tmp_path, lambda pid: True)
    assert not fleet.wrong
    assert fleet.poisonings == 1
