"""What can be done to the server and to its clients is done, felt and undone; and its account is read as it is."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from asyncpg.connect_utils import SessionAttribute

from chaos.evidence import Change, Input, Work
from chaos.plan import Fault
from chaos.stores import postgresql
from chaos.stores.base import Ground, Site
from tests.support import eventually

TABLES = ("task", "run", "session", "input", "entry")
LOOK = "; ".join(["BEGIN", *(f"SELECT count(*) FROM perdure.{table}" for table in TABLES), "COMMIT"])
PROMPT = 0.5
SPANS = {"SIGSTOP of the server": 1.2, "SIGSTOP of the server past the lease": 1.2}
"""Seconds. Felt is what is asked meanwhile, and who had asked just before asks again once PROMPT is over."""


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    site = Site(tmp_path_factory.mktemp("postgresql"), "no interposer", mount=False, seats=2)
    with postgresql.ground(site) as made:
        yield made


@pytest.fixture
async def prepared(ground: Ground) -> AsyncGenerator[Ground]:
    async with ground.prepared():
        yield ground


class Client:
    """Asks again and again over the link of the first seat, on a new connection if need be; and listens."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.answered = 0
        self.listening = False

    async def ask(self) -> None:
        while True:
            with contextlib.suppress(
                OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError
            ):
                connection = await self._connected()
                try:
                    while True:
                        await connection.execute(LOOK, timeout=PROMPT)
                        self.answered += 1
                        await asyncio.sleep(0.01)
                finally:
                    connection.terminate()
            await asyncio.sleep(0.01)

    async def listen(self) -> None:
        while True:
            with contextlib.suppress(
                OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError
            ):
                connection = await self._connected()
                try:
                    await connection.execute("LISTEN perdure")
                    self.listening = True
                    await eventually(connection.is_closed, "nobody ended it")
                finally:
                    self.listening = False
                    connection.terminate()
            await asyncio.sleep(0.01)

    async def _connected(self) -> Any:
        return await asyncpg.connect(self._url, timeout=PROMPT, target_session_attrs=SessionAttribute.read_write)


@contextlib.asynccontextmanager
async def asking(ground: Ground) -> AsyncGenerator[Client]:
    client = Client(ground.url(0))
    tasks = [asyncio.create_task(client.ask()), asyncio.create_task(client.listen())]
    try:
        await eventually(lambda: client.answered > 0 and client.listening, "nobody answers")
        yield client
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@pytest.mark.timeout(180)  # a server that is restarted three times, on a machine that others use
async def test_whatever_is_done_is_felt_and_undone(prepared: Ground) -> None:
    for kind, trouble in prepared.troubles.items():
        async with asking(prepared) as client:
            assert await trouble.inflict(Fault(0, kind, 0, SPANS.get(kind, 0.3), 0.6)), f"nobody felt it: {kind}"
            before = client.answered
            await eventually(lambda: client.answered > before, f"it was not undone: {kind}")  # noqa: B023 - awaited here
    assert prepared.oddities() == []


@pytest.mark.parametrize("kind", ["server restarted, fast", "no more connections", "network parted past the lease"])
async def test_what_is_broken_off_in_the_middle_is_healed(prepared: Ground, kind: str) -> None:
    async def reached() -> bool:
        try:
            connection = await asyncpg.connect(prepared.url(0), timeout=PROMPT)
        except (OSError, asyncpg.PostgresError):
            return False
        connection.terminate()
        return True

    async def lost() -> bool:
        return not await reached()

    task = asyncio.create_task(prepared.troubles[kind].inflict(Fault(0, kind, 0, 60)))
    await eventually(lost, "nothing happened")
    task.cancel()
    await asyncio.wait([task])
    await prepared.heal()
    await eventually(reached, "it was not healed")


TASK = """
INSERT INTO perdure.task (id, tenant, principal, method, name, params, handler_version, status, version, created_at,
                          updated_at, accepts)
VALUES ('tsk_a', '', '', 'tools/call', 'order', '{"arguments": {"label": "order-1"}}', '', 'working', 1, 5, 5, '');
UPDATE perdure.task SET status = 'input_required', version = 2, updated_at = 6;
INSERT INTO perdure.input (task_seq, key, position, request, response, state, issued_at)
SELECT seq, 'name', 0, '{}', '{"content": {"text": "Ada"}}', 'answered', 6 FROM perdure.task;
INSERT INTO perdure.entry (task_seq, place, verb, name, state, value)
SELECT seq, '1', 'external', 'render', 'done', '{"value": "x"}' FROM perdure.task;
INSERT INTO perdure.event (task_seq, position, at, kind, detail) SELECT seq, 0, 7, 'death', '' FROM perdure.task;
INSERT INTO perdure.session (id, expires_at, info) VALUES ('s', 0, '{"pid": 7}');
INSERT INTO perdure.run (task_seq, handler, tenant, session, max_attempts) VALUES (77, 'order', '', 's', 1);
"""


async def test_the_account_says_what_there_is_and_what_should_not_be(prepared: Ground) -> None:
    connection = await asyncpg.connect(prepared.url(0))
    await connection.execute(TASK)
    assert await prepared.leases() == {7}
    assert await prepared.working() == 0
    await connection.close()
    found = await prepared.look()
    row = found.rows["tsk_a"]
    assert (row.kind, row.label, row.status, row.version, row.updated) == ("order", "order-1", "input_required", 2, 6)
    assert list(row.changes) == [Change("working", "input_required", 1, 2, 5, 6)]
    assert (row.runnable, row.events) == (False, {"death": 1})
    assert found.inputs == {("tsk_a", "name"): Input("answered", "Ada")}
    assert found.works == {("tsk_a", "render"): Work("done", "x")}
    assert (found.sessions, found.held, found.integrity) == (1, 1, "1 orphans of run")


async def test_connections_that_outlive_their_processes_are_found(
    prepared: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "LEFT_WITHIN", 0.0)
    connection = await asyncpg.connect(prepared.url(0))
    assert "1 connections outlived all processes" in (await prepared.look()).integrity
    await connection.close()


def test_the_evidence_is_kept(ground: Ground, tmp_path: Path) -> None:
    ground.keep(tmp_path)
    assert (tmp_path / "server.log").read_text()
    assert {path.name for path in tmp_path.glob("*.jsonl")} > {"task.jsonl", "audit.jsonl"}
