"""A process of its own that claims one task and then does nothing: what is left of a worker that is about to be killed.

Run as `python -m tests.engine.neighbour URL`; prints a line once it holds the task.
"""

import asyncio
import sys

from perdure.domain.model import Demand
from perdure.engine import lease
from perdure.store.sqlite import SQLiteStore

HOUR = 3_600_000


async def main(url: str) -> None:
    store = SQLiteStore(url)
    await store.open()
    session = await store.open_session(HOUR, lease.identity())
    claims = await store.claim(session.id, [Demand("tools/call:report", 1)], 1)
    print(len(claims), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
