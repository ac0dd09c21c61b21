"""Another process on the same file: `python -m tests.store.neighbour URL` makes a task for each line that it reads.

It says so, in a line each, once its store is open and whenever a task is made.
"""

import asyncio
import sys

from perdure.store.sqlite import SQLiteStore
from perdure.testing.stores.support import new_task


async def main(url: str) -> None:
    store = SQLiteStore(url)
    await store.open()
    print("ready", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        await store.create(new_task())
        print("made", flush=True)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
