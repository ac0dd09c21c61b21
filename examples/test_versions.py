"""A test of `versions.py`: a task that the code of last week began is finished by this week's."""

from pathlib import Path

import pytest
import versions

from perdure import Tasks
from perdure.testing import Harness

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_what_waits_since_last_week_is_finished(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'tasks.db'}"
    last_week = Tasks("sqlite:///unused.db")
    last_week.tool("article")(versions.article_before_2)
    async with Harness(last_week, store=store) as harness:
        task = await harness.call("article", {"topic": "tea"})
        assert task.status == "input_required"
    async with Harness(versions.tasks, store=store) as harness:
        task = await harness.answer(task, {"approve": {"approved": True}})
        assert task.value == "All about tea."
