"""What was changed in the database is served to nobody: its owner hears an internal error, and nothing of it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from perdure import KeyRing, Owner, Tasks
from tests.store.sealed import OLD
from tests.wire.envelopes import JSON
from tests.wire.handshake import Old
from tests.wire.listening import listening
from tests.wire.support import Client, Stage, serving, stage


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


async def hello(name: str) -> str:
    return f"Hello, {name}!"


def declare(tasks: Tasks) -> None:
    tasks.tool()(hello)


def damage(scene: Stage, task_id: str) -> None:
    with closing(sqlite3.connect(scene.database, isolation_level=None)) as connection:
        connection.execute("UPDATE task SET result = '~1.lost.AAAA' WHERE id = ?", (task_id,))


def damage_row(scene: Stage, task_id: str) -> None:
    """So that nobody can even tell how the task stands."""
    with closing(sqlite3.connect(scene.database, isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("UPDATE task SET ttl_ms = -1 WHERE id = ?", (task_id,))


def somebody(_: object) -> Owner:
    return Owner("acme", "ada")


async def test_a_task_that_can_not_be_read_does_not_end_the_paging_of_a_list(tmp_path: Path) -> None:
    async with stage(tmp_path, declare, legacy=True, identify=somebody) as up:
        made = [await up.client.start("hello", {"name": "Ada"}) for _ in range(51)]
        for task_id in made:
            await up.client.until(task_id)
        damage(up, last := made[1])
        old = Old(up, "2025-11-25", {})
        await old.shake_hands()
        first = (await old.request("tasks/list", {})).result
        assert first["nextCursor"] == last
        assert [task["taskId"] for task in first["tasks"]] == made[:1:-1]
        rest = (await old.request("tasks/list", {"cursor": last})).result
        assert [task["taskId"] for task in rest["tasks"]] == made[:1]


@pytest.mark.parametrize("core", [{}, {"toolsListChanged": True}])
async def test_a_stream_with_a_task_that_can_not_be_read_shows_the_others_and_ends_with_an_internal_error(
    tmp_path: Path, core: JSON
) -> None:
    async with stage(tmp_path, declare) as up:
        made = [await up.client.start("hello", {"name": "Ada"}) for _ in range(2)]
        for task_id in made:
            await up.client.until(task_id)
        damage(up, made[0])
        async with listening(up.client, *made, **core) as stream:
            assert await stream.begun() == made
            assert (await stream.snapshot())["taskId"] == made[1]
            error = (await stream.frame())["error"]
        assert (error["code"], error["message"]) == (-32603, "Internal error")
        assert "data" not in error


async def test_so_does_one_with_a_task_whose_row_is_damaged_which_it_does_not_accept(tmp_path: Path) -> None:
    async with stage(tmp_path, declare) as up:
        made = [await up.client.start("hello", {"name": "Ada"}) for _ in range(2)]
        for task_id in made:
            await up.client.until(task_id)
        damage_row(up, made[0])
        async with listening(up.client, *made) as stream:
            assert await stream.begun() == made[1:]
            assert (await stream.snapshot())["taskId"] == made[1]
            assert (await stream.frame())["error"]["message"] == "Internal error"


async def test_a_list_whose_last_task_has_a_damaged_row_by_now_begins_anew(tmp_path: Path) -> None:
    async with stage(tmp_path, declare, legacy=True, identify=somebody) as up:
        made = [await up.client.start("hello", {"name": "Ada"}) for _ in range(51)]
        old = Old(up, "2025-11-25", {})
        await old.shake_hands()
        last = (await old.request("tasks/list", {})).result["nextCursor"]
        damage_row(up, last)
        error = (await old.request("tasks/list", {"cursor": last})).error
        assert (error["code"], error["message"]) == (-32602, "Invalid cursor: list from the beginning")
        assert len((await old.request("tasks/list", {})).result["tasks"]) == len(made) - 1
