"""The commands of `docs/running.md` about a SQLite file do what the page says, beside a server that has much to do."""

import asyncio
import os
import re
import signal
import sqlite3
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import replace
from pathlib import Path

from perdure.domain.model import JSONObject
from perdure.store.sqlite import SQLiteStore
from tests.store.support import ADA, new_task
from tests.support import PATIENCE
from tests.wire.support import ROOT

(BACKUP,) = re.findall(r"```\n(\(umask [^`]* tasks\.db [^`]*)\n```", (ROOT / "docs/running.md").read_text("utf-8"))
WRITER = """
import itertools, sqlite3, sys
connection = sqlite3.connect("tasks.db", timeout=60, isolation_level=None)
for number in itertools.count():
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE task SET message = ? WHERE seq = 1", (str(number),))
    connection.execute("UPDATE task SET message = ? WHERE seq = 2", (str(number),))
    connection.execute("COMMIT")
    if number == 10:
        print("at it", flush=True)
"""
LARGE = 80
"""How many tasks with arguments of half a MiB: beyond what is copied from one commit to the next."""


@asynccontextmanager
async def process(folder: Path, *command: str, out: int | None = None) -> AsyncGenerator[asyncio.subprocess.Process]:
    begun = await asyncio.create_subprocess_exec(*command, cwd=folder, stdout=out, umask=0o022, start_new_session=True)
    try:
        yield begun
    finally:
        with suppress(ProcessLookupError):
            os.killpg(begun.pid, signal.SIGKILL)
        await begun.wait()


@asynccontextmanager
async def busy(folder: Path) -> AsyncGenerator[None]:
    """Somebody who commits to the file all the time, from another process as servers are."""
    async with process(folder, sys.executable, "-c", WRITER, out=asyncio.subprocess.PIPE) as writer:
        assert writer.stdout is not None
        async with asyncio.timeout(PATIENCE):
            assert await writer.stdout.readline() == b"at it\n"
        yield
        assert writer.returncode is None


async def filled(url: str) -> str:
    """A store of forty MiB; the id of its first task."""
    store = SQLiteStore(url)
    await store.open()
    try:
        first = await store.create(new_task())
        await store.create(new_task())
        for _ in range(LARGE):
            new = new_task()
            params: JSONObject = {"text": "x" * (1 << 19)}
            await store.create(replace(new, operation=replace(new.operation, params=params)))
    finally:
        await store.close()
    return first.id


async def test_a_backup_of_a_file_that_others_write_to_all_the_time_ends_and_is_one_moment_and_its_users_alone(
    tmp_path: Path,
) -> None:
    task_id = await filled(f"sqlite:///{tmp_path}/tasks.db")
    async with busy(tmp_path), process(tmp_path, "sh", "-c", BACKUP) as backup, asyncio.timeout(PATIENCE):
        assert await backup.wait() == 0
    copy = tmp_path / "copy.db"
    assert copy.stat().st_mode & 0o077 == 0
    assert copy.stat().st_size > LARGE << 19
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        messages = connection.execute("SELECT DISTINCT message FROM task WHERE seq < 3").fetchall()
        assert len(messages) == 1, "both were written in one transaction"
    store = SQLiteStore(f"sqlite:///{copy}")
    await store.open()
    try:
        assert (await store.get(ADA, task_id)).message == messages[0][0]
    finally:
        await store.close()


async def test_a_backup_does_not_write_over_what_is_there(tmp_path: Path) -> None:
    await filled(f"sqlite:///{tmp_path}/tasks.db")
    (tmp_path / "copy.db").write_bytes(b"the one of yesterday")
    async with process(tmp_path, "sh", "-c", BACKUP) as backup, asyncio.timeout(PATIENCE):
        assert await backup.wait() != 0
    assert (tmp_path / "copy.db").read_bytes() == b"the one of yesterday"
