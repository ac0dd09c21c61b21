"""Nothing that a client sends, that a tool returns, or that lets somebody in is in the log, whatever its level."""

import logging
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from perdure import Handle, TaskContext, Tasks
from perdure.store.sqlite import SQLiteStore
from tests.support import eventually
from tests.wire.envelopes import EVERYTHING, meta
from tests.wire.support import Client, serving, tasks_on

CANARY = "canary-4711"


class Form(BaseModel):
    name: str
    size: int


def remember(text: str) -> str:
    return f"{text}, remembered"


async def test_no_content_no_token_and_no_id_in_full_gets_into_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    handles: list[Handle] = []

    def declare(tasks: Tasks) -> None:
        @tasks.tool()
        async def talk(text: str, task: TaskContext) -> str:
            await task.report(text)
            await task.step("remember", remember, text)
            answer = await task.elicit("form", text, Form)
            await task.external("work", handles.append)
            return f"{text} {answer.data}"

    caplog.set_level(logging.DEBUG)
    tasks = tasks_on(SQLiteStore(f"sqlite:///{tmp_path / 'tasks.db'}"))
    mcp = tasks.server("wire")
    declare(tasks)
    tasks.callbacks(mcp)
    async with serving(mcp) as (http, url):
        client = Client(http, url, CANARY)
        key: Any = {"_meta": {**meta(EVERYTHING), "dev.perdure/idempotencyKey": CANARY}}
        task_id = await client.start("talk", {"text": CANARY}, params=key)
        await client.until(task_id, "input_required")
        for content in ({"name": CANARY}, {"name": CANARY, "size": CANARY}, CANARY):
            reply = await client.update(task_id, {"form": {"action": "accept", "content": content}})
            assert reply.code == -32602
            assert CANARY not in reply.error["message"]
        await client.update(task_id, {"form": {"action": "accept", "content": {"name": CANARY, "size": 1}}})
        await eventually(lambda: bool(handles), "no work was handed over")
        await tasks.external.report(handles[0], CANARY)
        await tasks.external.complete(handles[0], CANARY)
        await client.until(task_id)
        assert (await client.call("talk", {"text": [CANARY]})).result["isError"]
        await client.get(CANARY)
        hook = Client(http, url.replace("/mcp", "/perdure/external"))
        for bearer in (CANARY, f"{task_id}~0~{CANARY}"):
            reply = await hook.post(b'{"result": 1}', [("authorization", f"Bearer {bearer}")])
            assert reply.status == 401
    ours = [record for record in caplog.records if not record.name.startswith(("httpx", "httpcore", "asyncio"))]
    assert ours, "something was said"
    said = "\n".join(logging.Formatter().format(record) for record in ours)
    for secret in (CANARY, task_id, handles[0].token):
        assert [line for line in said.splitlines() if secret in line] == []
