"""Tests of `refunds.py`: an answer, a timeout, a failure, and a crash at every write."""

from functools import partial

import pytest
import refunds

from perdure.testing import Harness, crash_everywhere

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_what_a_person_agreed_to_is_paid() -> None:
    async with Harness(refunds.tasks) as harness:
        task = await harness.call("refund", {"number": "17"})
        assert task.status == "input_required"
        assert "Pay 40 back to customer 17?" in str(task.questions["agree"])
        task = await harness.answer(task, {"agree": {"approved": True}})
        assert task.value == "receipt for 40"


async def test_after_three_days_without_an_answer_nothing_is_paid() -> None:
    async with Harness(refunds.tasks) as harness:
        task = await harness.call("refund", {"number": "17"})
        await harness.advance("3 days")
        task = await harness.look(task)
        assert task.result.is_error
        assert "Nothing was paid back: timeout." in task.value


async def test_a_worker_may_die_at_any_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[str] = []

    async def pay_back(order: refunds.Order, key: str) -> str:
        keys.append(key)
        return "receipt"

    async def scenario(harness: Harness) -> None:
        keys.clear()
        task = await harness.call("refund", {"number": "17"})
        task = await harness.answer(task, {"agree": {"approved": True}})
        assert task.value == "receipt"
        assert set(keys) == {task.id}, "asked more than once perhaps, but always under one key"

    monkeypatch.setattr(refunds, "pay_back", pay_back)
    assert await crash_everywhere(partial(Harness, refunds.tasks), scenario) > 0
