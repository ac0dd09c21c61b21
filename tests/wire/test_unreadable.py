"""What was changed in the database is served to nobody: its owner hears an internal error, and nothing of it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from perdure import KeyRing, Tasks
from tests.store.sealed import OLD
from tests.wire.support import Client, serving


@pytest.mark.parametrize("value", ["params", "'~1.old.AAAA'", "'~1.lost.AAAA'"])
async def test_a_result_that_can_not_be_opened_is_an_internal_error(tmp_path: Path, value: str) -> None:
    tasks = Tasks(f"sqlite:///{tmp_path / 'tasks.db'}", keys=KeyRing(OLD))

    @tasks.tool(mode="task")
    async def greet(name: str) -> str:
        return f"Hello, {name}!"

    async with serving(tasks.server("wire")) as (http, url):
        client = Client(http, url)
        changed, other = [await client.start("greet", {"name": name}) for name in ("Ada", "Bob")]
        for task_id in (changed, other):
            await client.until(task_id)
        with closing(sqlite3.connect(tmp_path / "tasks.db", isolation_level=None)) as connection:
            connection.execute(f"UPDATE task SET result = {value} WHERE id = ?", (changed,))
        error = (await client.get(changed)).error
        assert (error["code"], error["message"]) == (-32603, "Internal error")
        assert "data" not in error
        assert (await client.get(other)).result["result"]["structuredContent"] == {"result": "Hello, Bob!"}
