"""A program that calls a tool and waits for it, or comes back to that call after it died.

    python -m tests.client.caller URL JOURNAL ASKED TOOL [resume]

The name of the journal is its idempotency key.

Its user writes down in the file ASKED that they were asked, before they answer, and answers once the file GATE of the
environment is there. It prints the result as JSON.
"""

import asyncio
import importlib
import json
import os
import sys

import anyio
from mcp.client import Client
from mcp.client.session import ClientRequestContext
from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitResult

from perdure.client import HTTP, Tasks, failpoints

importlib.reload(failpoints)  # whoever this is a copy of had loaded it before this environment was there


class User:
    def __init__(self, notebook: str) -> None:
        self._notebook = notebook

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        notebook = os.open(self._notebook, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(notebook, params.message.encode() + b"\n")
            os.fsync(notebook)
        finally:
            os.close(notebook)
        gate = anyio.Path(os.environ.get("GATE", self._notebook))
        while not await gate.exists():  # noqa: ASYNC110 - by another process
            await asyncio.sleep(0.02)
        return ElicitResult(action="accept", content={"text": "Ada"})


async def main(url: str, journal: str, notebook: str, tool: str, *comes_back: str) -> None:
    tasks, key = Tasks(journal), journal
    async with Client(HTTP(url), extensions=[tasks], elicitation_callback=User(notebook)) as client:
        if comes_back:
            handle = await tasks.resume(client, key)
        else:
            handle = await tasks.start(client, tool, {"label": "crash"}, idempotency_key=key)
        result = await handle.result(30)
    print(json.dumps({"id": handle.id, **(result.structured_content or {})}))
    tasks.journal.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
