"""Lanes: who shares a batch, who is told what and when, and what becomes of callers when the database does not answer.

The jobs are notes, rows of the table of sessions: a note that is there already, or that no column holds, is at fault.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import anyio
import asyncpg
import pytest

from perdure.domain.errors import LeaseLost, NotStorable, StoreUnavailable
from perdure.domain.model import Change, Status
from perdure.store.postgres import lanes as module
from perdure.store.postgres.jobs import Done, Kind
from perdure.store.postgres.lanes import Lanes
from perdure.store.postgres.url import Connection, parse
from perdure.testing.postgresql import Cluster
from tests.support import PATIENCE, eventually

_WRITE = "INSERT INTO perdure.session (id, expires_at, info) VALUES ($1, 0, '')"

Text = Kind[str]


class Server:
    """The database as lanes see it, with what they did to it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.batches: list[list[str]] = []
        self.connections: list[Connection] = []
        self.refusing = False
        self.attempts = 0
        self.gate: asyncio.Event | None = None

    async def connect(self, timeout: float) -> Connection:  # noqa: ASYNC109 - as lanes call it
        self.attempts += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.refusing:
            raise ConnectionRefusedError(111, "Connect call failed")
        self.connections.append(await parse(self.url).connect(timeout))
        return self.connections[-1]

    async def write(self, connection: Connection, texts: Sequence[str]) -> list[Done]:
        """Write notes, all in one transaction."""
        self.batches.append([*texts])
        await connection.execute("BEGIN")
        for text in texts:
            await connection.execute(_WRITE, text)
        await connection.execute("COMMIT")
        return [Done(text, changes=[Change(text, 1, Status.WORKING)]) for text in texts]

    async def notes(self) -> list[str]:
        """What anybody else can see."""
        outside = await parse(self.url).connect_directly(PATIENCE)
        try:
            return [id_ for (id_,) in await outside.fetch("SELECT id FROM perdure.session ORDER BY id")]
        finally:
            await outside.close()


class Gate:
    """Holds a batch until the test opens it."""

    def __init__(self, then: Callable[[Connection, Sequence[str]], Awaitable[Sequence[Done]]]) -> None:
        self._then = then
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def __call__(self, connection: Connection, texts: Sequence[str]) -> Sequence[Done]:
        self.reached.set()
        await self.opened.wait()
        return await self._then(connection, texts)


@pytest.fixture
def server(emptied_database: str) -> Server:
    return Server(emptied_database)


@pytest.fixture
def changes() -> list[Change]:
    return []


@pytest.fixture
async def lanes(server: Server, changes: list[Change]) -> AsyncIterator[Lanes]:
    lanes = Lanes(server.connect, changes.extend, count=2, max_waiting=20)
    lanes.open()
    async with asyncio.timeout(PATIENCE):
        yield lanes
        await lanes.close()


async def asked(lanes: Lanes, kind: Text, *texts: str) -> list[asyncio.Task[Any]]:
    tasks = [asyncio.create_task(lanes.do(kind, text)) for text in texts]
    await anyio.lowlevel.checkpoint()
    return tasks


async def held(
    lanes: Lanes, server: Server, *texts: str, most: int = 200
) -> tuple[Gate, Text, list[asyncio.Task[Any]]]:
    """A kind whose one batch is held, and callers that wait behind it. The gate's own note is "gate"."""
    gate = Gate(server.write)
    kind: Text = Kind(gate, most, at_once=1)
    first = await asked(lanes, kind, "gate")
    await gate.reached.wait()
    return gate, kind, first + await asked(lanes, kind, *texts)


# -- sharing -----------------------------------------------------------------------------------------------------------


async def test_jobs_that_come_while_their_kind_is_busy_share_the_next_batch(lanes: Lanes, server: Server) -> None:
    texts = [str(number) for number in range(5)]
    gate, _, tasks = await held(lanes, server, *texts)
    gate.opened.set()
    assert await asyncio.gather(*tasks) == ["gate", *texts]
    assert server.batches == [["gate"], texts]
    assert await server.notes() == sorted(["gate", *texts])


async def test_a_batch_is_bounded(lanes: Lanes, server: Server) -> None:
    texts = [str(number) for number in range(5)]
    gate, _, tasks = await held(lanes, server, *texts, most=3)
    gate.opened.set()
    await asyncio.gather(*tasks)
    assert server.batches == [["gate"], texts[:3], texts[3:]]


async def test_a_batch_that_weighs_too_much_comes_again_in_parts(
    lanes: Lanes, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few dozen large results take longer to write than a batch may; together they would never be written."""
    monkeypatch.setattr(module, "_SERVE", 0.2)
    sizes: list[int] = []

    async def write(connection: Connection, texts: Sequence[str]) -> list[Done]:
        sizes.append(len(texts))
        if len(texts) > 3:
            await asyncio.sleep(PATIENCE)
        return await server.write(connection, texts)

    kind: Text = Kind(write, at_once=1)

    async def persist(text: str) -> None:
        while text not in await asyncio.gather(lanes.do(kind, text), return_exceptions=True):
            pass

    texts = [str(number) for number in range(16)]
    await asyncio.gather(*map(persist, texts))
    assert await server.notes() == sorted(texts)
    assert max(sizes[sizes.index(16) + 1 :], default=0) < 16


def test_batches_grow_while_they_are_served_quickly_and_shrink_where_they_are_not(server: Server) -> None:
    kind: Text = Kind(server.write, 100)
    kind.took(5.0, 40)
    assert kind.room == 20
    kind.took(1.0, 20)
    assert kind.room == 20
    kind.failed(20)
    assert kind.room == 5
    kind.failed(1)
    kind.took(5.0, 1)
    assert kind.room == 1
    for _ in range(10):
        kind.took(0.01, 1)
    assert kind.room == 100


async def test_a_job_that_is_alone_waits_for_no_one(lanes: Lanes, server: Server) -> None:
    kind: Text = Kind(server.write)
    await lanes.do(kind, "one")
    await lanes.do(kind, "two")
    assert server.batches == [["one"], ["two"]]


async def test_a_kind_that_is_busy_holds_up_no_other(lanes: Lanes, server: Server) -> None:
    gate, _, tasks = await held(lanes, server, "behind")
    assert await lanes.do(Kind(server.write), "other") == "other"
    gate.opened.set()
    await asyncio.gather(*tasks)


async def test_a_kind_is_served_on_as_many_connections_as_it_may_have(lanes: Lanes, server: Server) -> None:
    gate = Gate(server.write)
    kind: Text = Kind(gate, most=1, at_once=2)
    tasks = await asked(lanes, kind, "one", "two", "three")
    await eventually(lambda: kind.running == 2, "only one connection is used")
    assert len(kind.waiting) == 1
    gate.opened.set()
    assert await asyncio.gather(*tasks) == ["one", "two", "three"]


async def test_a_connection_that_is_enough_stays_the_only_one(lanes: Lanes, server: Server) -> None:
    kind: Text = Kind(server.write)
    for number in range(6):
        await lanes.do(kind, str(number))
    assert server.attempts == 1


async def test_the_first_connection_may_be_there_already(server: Server, changes: list[Change]) -> None:
    lanes = Lanes(server.connect, changes.extend)
    given = await server.connect(PATIENCE)
    lanes.open(given)
    await lanes.do(Kind(server.write), "one")
    await lanes.close()
    assert server.attempts == 1
    assert given.is_closed()


# -- one that is at fault ----------------------------------------------------------------------------------------------


async def test_a_job_that_is_at_fault_fails_alone(lanes: Lanes, server: Server, changes: list[Change]) -> None:
    gate, _, tasks = await held(lanes, server, "a", "gate", "b", "nul \0", "c", "\ud800")
    gate.opened.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [each for each in results if isinstance(each, str)] == ["gate", "a", "b", "c"]
    assert isinstance(results[2], asyncpg.UniqueViolationError)  # no error that concerns the value: it is told as it is
    assert isinstance(results[4], NotStorable)  # the server says so
    assert isinstance(results[6], NotStorable)  # the driver does
    assert await server.notes() == ["a", "b", "c", "gate"]
    assert [change.task_id for change in changes] == ["gate", "a", "b", "c"]
    assert len(server.connections) == 1


async def test_a_batch_with_a_job_that_is_at_fault_is_tried_once_before_each_job_is_tried_alone(
    lanes: Lanes, server: Server
) -> None:
    """It would fail as often as it is tried, and its other callers wait for it."""
    texts = ["a", "nul \0", "b"]
    gate, _, tasks = await held(lanes, server, *texts)
    gate.opened.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert server.batches == [["gate"], texts, *([text] for text in texts)]


async def test_what_a_verb_refuses_is_no_fault_of_the_batch(lanes: Lanes) -> None:
    async def refuse(connection: Connection, texts: Sequence[str]) -> list[Done]:
        return [Done(error=LeaseLost()) if text == "late" else Done(text) for text in texts]

    results = await asyncio.gather(*await asked(lanes, Kind(refuse), "one", "late"), return_exceptions=True)
    assert results[0] == "one"
    assert isinstance(results[1], LeaseLost)


@pytest.mark.parametrize("error", [LeaseLost, ValueError])
async def test_an_error_of_our_own_that_is_raised_reaches_its_caller_as_it_is(
    lanes: Lanes, error: type[Exception]
) -> None:
    async def refuse(connection: Connection, texts: Sequence[str]) -> list[Done]:
        raise error

    with pytest.raises(error):
        await lanes.do(Kind(refuse), "one")


# -- batches that lose against others ----------------------------------------------------------------------------------


async def test_two_batches_that_deadlock_are_both_served(lanes: Lanes, server: Server, postgres: Cluster) -> None:
    both = asyncio.Barrier(2)
    met: list[str] = []

    async def crosswise(connection: Connection, texts: Sequence[str]) -> list[Done]:
        (text,) = texts
        await connection.execute("BEGIN; SET LOCAL deadlock_timeout = '10ms'")
        for number in (1, 2) if text == "one" else (2, 1):
            await connection.execute(f"SELECT pg_advisory_xact_lock({number})")
            if len(met) < 2:
                met.append(text)
                await both.wait()
        await connection.execute("COMMIT")
        return [Done(text)]

    kind: Text = Kind(crosswise, most=1)
    before = postgres.log.read_text().count("deadlock detected")
    assert await asyncio.gather(lanes.do(kind, "one"), lanes.do(kind, "two")) == ["one", "two"]
    assert postgres.log.read_text().count("deadlock detected") == before + 1


async def test_a_batch_that_always_loses_is_given_up_for_now(lanes: Lanes, server: Server) -> None:
    tries: list[int] = []

    async def lose(connection: Connection, texts: Sequence[str]) -> list[Done]:
        tries.append(1)
        await connection.execute("BEGIN; DO $$ BEGIN RAISE EXCEPTION 'lost' USING ERRCODE = '40001'; END $$")
        return []

    with pytest.raises(StoreUnavailable):
        await lanes.do(Kind(lose), "one")
    assert 1 < len(tries) < 10
    assert await lanes.do(Kind(server.write), "two") == "two"


# -- a connection that breaks ------------------------------------------------------------------------------------------


async def test_a_batch_whose_connection_breaks_is_told_so_and_the_next_is_served_on_a_new_one(
    lanes: Lanes, server: Server, changes: list[Change]
) -> None:
    async def die(connection: Connection, texts: Sequence[str]) -> list[Done]:
        await connection.execute("BEGIN")
        await connection.execute(_WRITE, texts[0])
        await connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return []

    with pytest.raises(StoreUnavailable) as caught:
        await lanes.do(Kind(die), "one")
    assert isinstance(caught.value.__cause__, asyncpg.PostgresError)
    assert await lanes.do(Kind(server.write), "two") == "two"
    assert await server.notes() == ["two"]
    assert [change.task_id for change in changes] == ["two"]
    assert len(server.connections) == 2


async def test_a_connection_that_broke_while_it_was_idle_is_opened_anew(
    lanes: Lanes, server: Server, postgres: Cluster
) -> None:
    kind: Text = Kind(server.write)
    await lanes.do(kind, "one")
    await asyncio.to_thread(postgres.terminate_backends, "datname = 'shared' AND application_name = 'perdure'")
    await eventually(server.connections[0].is_closed, "the connection was not cut")
    assert await lanes.do(kind, "two") == "two"


async def test_a_mistake_of_ours_drops_the_connection_and_is_logged(
    lanes: Lanes, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    left: list[asyncio.Task[Any]] = []

    async def leave_something_running(connection: Connection, texts: Sequence[str]) -> list[Done]:
        await connection.execute("BEGIN")
        left.append(asyncio.create_task(connection.execute("SELECT pg_sleep(30)")))
        await anyio.lowlevel.checkpoint()
        raise ValueError("a bug")

    with pytest.raises(StoreUnavailable):
        await lanes.do(Kind(leave_something_running), "one")
    await asyncio.gather(*left, return_exceptions=True)
    assert "The task store failed" in caplog.text
    assert await lanes.do(Kind(server.write), "two") == "two"


# -- a database that is away -------------------------------------------------------------------------------------------


async def test_for_a_moment_after_a_failure_to_connect_nobody_tries_again(
    lanes: Lanes, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.refusing = True
    kind: Text = Kind(server.write)
    results = await asyncio.gather(*await asked(lanes, kind, "one", "two", "three"), return_exceptions=True)
    assert all(isinstance(each, StoreUnavailable) for each in results)
    for _ in range(5):
        with pytest.raises(StoreUnavailable):
            await lanes.do(kind, "at once")
    assert server.attempts == 1
    server.refusing = False

    async def served() -> bool:
        try:
            return await lanes.do(kind, "later") == "later"
        except StoreUnavailable:
            return False

    await eventually(served, "the database is back, and nobody connects to it")
    assert await server.notes() == ["later"]
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) == 2  # when it began, and when it was over
    assert "Connect call failed" in said[0]


async def test_whoever_waits_when_the_connection_can_not_be_opened_hears_so_at_once(
    lanes: Lanes, server: Server
) -> None:
    gate, _, tasks = await held(lanes, server, "a", "b")
    (connection,) = server.connections
    server.refusing = True
    connection.terminate()
    gate.opened.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(each, StoreUnavailable) for each in results)


async def test_where_there_are_fewer_connections_than_lanes_those_that_there_are_serve_everybody(
    lanes: Lanes, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """The server's limit is reached, say. It is no reason to refuse anybody what an open connection can do."""
    gate, _, tasks = await held(lanes, server, "a", "b")
    server.refusing = True
    others = await asked(lanes, Kind(server.write, 2), "c", "d", "e")
    await eventually(lambda: server.attempts == 2, "nobody tried to connect")
    assert await server.notes() == []
    gate.opened.set()
    assert await asyncio.gather(*tasks, *others) == ["gate", "a", "b", "c", "d", "e"]
    assert await lanes.do(Kind(server.write), "next") == "next"
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) == 1
    assert said[0].startswith("One connection more")


async def test_a_kind_whose_callers_were_all_told_is_not_served_for_nothing(server: Server) -> None:
    lanes = Lanes(server.connect, lambda changes: None, count=1)
    lanes.open()
    gate, _, tasks = await held(lanes, server)
    other: Text = Kind(server.write, patience=0)
    late = await asked(lanes, other, "impatient")
    results = await asyncio.gather(*late, return_exceptions=True)
    assert isinstance(results[0], StoreUnavailable)
    gate.opened.set()
    await asyncio.gather(*tasks)
    assert await lanes.do(Kind(server.write), "next") == "next"
    assert server.batches == [["gate"], ["next"]]
    await lanes.close()


async def test_callers_lose_patience_with_a_batch_that_may_yet_get_through(
    lanes: Lanes, server: Server, changes: list[Change]
) -> None:
    gate = Gate(server.write)
    kind: Text = Kind(gate, patience=0.01)
    with pytest.raises(StoreUnavailable):
        await lanes.do(kind, "slow")
    gate.opened.set()
    await eventually(lambda: [change.task_id for change in changes] == ["slow"], "the batch did not get through")
    assert await server.notes() == ["slow"]


async def test_where_one_connection_hangs_the_others_are_not_trusted(
    lanes: Lanes, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(connection: Connection, texts: Sequence[str]) -> list[Done]:
        await connection.execute("SELECT pg_sleep(60)")
        return []

    gate, _, tasks = await held(lanes, server)
    await lanes.do(Kind(server.write), "second connection")
    gate.opened.set()
    await asyncio.gather(*tasks)
    one, other = server.connections
    monkeypatch.setattr(module, "_SERVE", 0.05)
    with pytest.raises(StoreUnavailable):
        await lanes.do(Kind(hang), "hangs")
    monkeypatch.undo()
    texts = [str(number) for number in range(4)]
    await asyncio.gather(*await asked(lanes, Kind(server.write, most=1), *texts))
    assert one.is_closed()
    assert other.is_closed()


async def test_what_still_comes_from_a_server_that_may_not_be_written_to_is_no_sign_that_the_database_is_back(
    lanes: Lanes, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """The primary became a standby while a batch was on its way: that one may yet be served, and no other."""

    async def is_read_only(connection: Connection, texts: Sequence[str]) -> list[Done]:
        raise asyncpg.ReadOnlySQLTransactionError("cannot execute DELETE in a read-only transaction")

    gate, _, tasks = await held(lanes, server)
    with pytest.raises(StoreUnavailable):
        await lanes.do(Kind(is_read_only), "refused")
    gate.opened.set()
    assert await asyncio.gather(*tasks) == ["gate"]
    assert "can be used again" not in caplog.text
    assert await lanes.do(Kind(server.write), "next") == "next"
    assert caplog.text.count("can't be used") == caplog.text.count("can be used again") == 1


async def test_a_connection_that_was_asked_for_in_vain_is_no_news_once_somebody_was_served(
    lanes: Lanes, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """The server hung; it is back, and what was asked of it meanwhile comes to its end."""
    gate = Gate(server.write)
    impatient = await asked(lanes, Kind(gate, patience=0.01, at_once=1), "gate")
    await gate.reached.wait()
    with pytest.raises(StoreUnavailable):
        await impatient[0]  # and its connection is trusted no more
    server.gate, server.refusing = asyncio.Event(), True
    (late,) = await asked(lanes, Kind(server.write), "late")
    await eventually(lambda: server.attempts == 2, "nobody tried to connect")
    gate.opened.set()
    await eventually(lambda: "can be used again" in caplog.text, "nobody was served")
    server.gate.set()
    with pytest.raises(StoreUnavailable):
        await late
    server.refusing = False
    assert await lanes.do(Kind(server.write), "next") == "next"
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 2


# -- limits and lifetime -----------------------------------------------------------------------------------------------


async def test_a_job_whose_caller_was_cancelled_is_done_all_the_same(
    lanes: Lanes, server: Server, changes: list[Change]
) -> None:
    gate, _, tasks = await held(lanes, server, "cancelled", "other")
    tasks[1].cancel()
    await asyncio.wait([tasks[1]])
    gate.opened.set()
    assert await tasks[2] == "other"
    assert await server.notes() == ["cancelled", "gate", "other"]
    assert [change.task_id for change in changes] == ["gate", "cancelled", "other"]


async def test_past_its_bound_the_queue_takes_nothing_more_and_says_so_at_once(lanes: Lanes, server: Server) -> None:
    gate, kind, tasks = await held(lanes, server, *map(str, range(19)))
    with pytest.raises(StoreUnavailable, match="too many callers"):
        await lanes.do(kind, "one too many")
    gate.opened.set()
    await asyncio.gather(*tasks)
    assert await lanes.do(kind, "later") == "later"


async def test_closing_serves_what_is_queued_and_takes_nothing_more(lanes: Lanes, server: Server) -> None:
    gate, kind, tasks = await held(lanes, server, "queued")
    closing = asyncio.create_task(lanes.close())
    await anyio.lowlevel.checkpoint()
    with pytest.raises(StoreUnavailable, match="closed"):
        await lanes.do(kind, "late")
    gate.opened.set()
    await closing
    assert await asyncio.gather(*tasks) == ["gate", "queued"]
    assert await server.notes() == ["gate", "queued"]
    assert all(connection.is_closed() for connection in server.connections)
    await lanes.close()


async def test_lanes_that_were_never_opened_are_closed(server: Server) -> None:
    lanes = Lanes(server.connect, lambda changes: None)
    with pytest.raises(StoreUnavailable, match="closed"):
        await lanes.do(Kind(server.write), "early")
    await lanes.close()


async def test_closed_lanes_may_be_opened_again(server: Server) -> None:
    lanes = Lanes(server.connect, lambda changes: None)
    for text in ("one", "two"):
        lanes.open()
        assert await lanes.do(Kind(server.write), text) == text
        await lanes.close()
