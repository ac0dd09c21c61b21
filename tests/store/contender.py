"""Somebody who does the same as another at the same moment: the same answers, cancellations, outcomes and claims.

In a process of its own, `python -m tests.store.contender URL NAME` says that its store is open, reads a `Contest`, says
that it begins, and prints its `Gains`; each is one line.
"""

import asyncio
import json
import sys
from typing import TypedDict

from perdure.domain.errors import LeaseLost
from perdure.domain.model import Claim, Completed
from perdure.store.base import Store
from perdure.store.sqlite import SQLiteStore
from perdure.testing import VirtualClock
from perdure.testing.stores.support import ADA, NOW, hire, new_task

QUEUED = "tools/call:queued"


class Contest(TypedDict):
    """What there is to win: ids of tasks."""

    asked: list[str]
    free: list[str]
    held: list[tuple[str, str, int]]
    """With the session and the fence, which both know."""
    queued: list[str]


class Gains(TypedDict):
    finished: list[str]
    claimed: list[str]


async def contend(store: Store, name: str, contest: Contest) -> Gains:
    """Try to be the first, one write after the other; nothing is heard but that somebody else was."""
    for task_id in contest["asked"]:
        await store.answer(ADA, task_id, {"name": name})
    for task_id in contest["free"]:
        await store.request_cancel(ADA, task_id)
    finished = [held[0] for held in contest["held"] if await _finish(store, name, *held)]
    worker, claimed = await hire(store), list[str]()
    while claims := await worker.claim(1, QUEUED):
        claimed += [claim.task.id for claim in claims]
    return {"finished": finished, "claimed": claimed}


async def _finish(store: Store, name: str, task_id: str, session: str, fence: int) -> bool:
    try:
        task, operation = await store.get(ADA, task_id), new_task().operation
        await store.finish(Claim(task, operation, fence, NOW, session=session), Completed({"by": name}))
    except LeaseLost:
        return False
    return True


async def main(url: str, name: str) -> None:
    store = SQLiteStore(url, VirtualClock())
    await store.open()
    print("ready", flush=True)
    contest = json.loads(await asyncio.to_thread(sys.stdin.readline))
    print("go", flush=True)
    print(json.dumps(await contend(store, name, contest)), flush=True)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
