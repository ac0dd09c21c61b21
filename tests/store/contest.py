"""What two contend for at the same time, and the verdict: both were served, and each thing was done once."""

from typing import Final

from perdure.domain.model import Status
from perdure.store.base import Store
from perdure.testing.stores.support import ADA, new_task, parked, running
from tests.store.contender import Contest, Gains

__all__ = ["ROUNDS", "arranged", "judge"]

ROUNDS: Final = 25
"""How often each thing is tried at once."""


async def arranged(store: Store) -> Contest:
    """Tasks in each of the states that somebody may be the first to end."""
    asked = [await parked(store) for _ in range(ROUNDS)]
    held = [await running(store) for _ in range(ROUNDS)]
    return {
        "asked": [claim.task.id for claim in asked],
        "free": [(await store.create(new_task())).id for _ in range(ROUNDS)],
        "held": [(claim.task.id, claim.session, claim.fence) for claim in held],
        "queued": [(await store.create(new_task("queued"))).id for _ in range(ROUNDS)],
    }


async def judge(store: Store, contest: Contest, one: Gains, other: Gains) -> None:
    """The contenders go by the names "one" and "other"."""
    for task_id in contest["asked"]:
        seen = await store.inspect(task_id)
        assert (seen.task.status, seen.task.version) == (Status.WORKING, 3)
        assert seen.journal.questions["name"].response in ("one", "other")
    for task_id in contest["free"]:
        task = await store.get(ADA, task_id)
        assert (task.status, task.version) == (Status.CANCELLED, 2)
    for task_id, *_ in contest["held"]:
        winner = "one" if task_id in one["finished"] else "other"
        assert (await store.get(ADA, task_id)).result == {"by": winner}
    assert sorted(one["finished"] + other["finished"]) == sorted(task_id for task_id, *_ in contest["held"])
    assert sorted(one["claimed"] + other["claimed"]) == sorted(contest["queued"])
