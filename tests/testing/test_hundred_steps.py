"""A tool of a hundred steps, whose worker dies at each of its writes in turn."""

from pathlib import Path

from perdure import TaskContext, Tasks
from perdure.testing import Harness, crash_everywhere

STEPS = 100


class Walk:
    """A tool that notes its steps, and where its worker dies."""

    def __init__(self, folder: Path, crash_at: int | None, crash_after: bool) -> None:
        self.tasks = Tasks(f"sqlite:///{folder / 'unused.db'}")
        self.crash_at, self.crash_after = crash_at, crash_after
        self.done: list[int] = []
        self.tasks.tool()(self.walk)

    async def walk(self, task: TaskContext) -> int:
        total = 0
        for number in range(STEPS):
            total += await task.step(f"step {number}", self._do, number)
        return total

    async def _do(self, number: int) -> int:
        self.done.append(number)
        return number

    @property
    def expected(self) -> list[int]:
        """The steps as they have to run: the one whose record the crash prevented runs twice in a row."""
        lost = [] if self.crash_at is None or self.crash_after else [self.crash_at - 1]
        return sorted([*range(STEPS), *(number for number in lost if number < STEPS)])


async def test_a_worker_that_dies_after_any_of_a_hundred_steps_costs_none_and_before_its_record_that_one(
    tmp_path: Path,
) -> None:
    walks: list[Walk] = []

    def make(crash_at: int | None = None, crash_after: bool = False) -> Harness:
        walks.append(Walk(tmp_path, crash_at, crash_after))
        return Harness(walks[-1].tasks, crash_at=crash_at, crash_after=crash_after)

    async def scenario(harness: Harness) -> None:
        task = await harness.call("walk")
        assert task.value == sum(range(STEPS))
        assert walks[-1].done == walks[-1].expected

    # One write for each step, and one for the result.
    assert await crash_everywhere(make, scenario) == 2 * (STEPS + 1)
