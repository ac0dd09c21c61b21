"""The tool of `refunds.py` on a PostgreSQL server that is there for these tests only."""

from collections.abc import Iterator

import pytest
import refunds

from perdure.testing import Harness
from perdure.testing.postgresql import Cluster

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(durable=False) as cluster:
        yield cluster


@pytest.fixture
def store(cluster: Cluster) -> Iterator[str]:
    yield cluster.create_store("refunds")
    cluster.drop_database("refunds")


async def test_what_a_person_agreed_to_is_paid(store: str) -> None:
    async with Harness(refunds.tasks, store=store) as harness:
        task = await harness.call("refund", {"number": "17"})
        assert task.status == "input_required"
        task = await harness.answer(task, {"agree": {"approved": True}})
        assert task.value == "receipt for 40"


async def test_after_three_days_without_an_answer_nothing_is_paid(store: str) -> None:
    async with Harness(refunds.tasks, store=store) as harness:
        task = await harness.call("refund", {"number": "17"})
        await harness.advance("3 days")
        task = await harness.look(task)
        assert "Nothing was paid back: timeout." in task.value
