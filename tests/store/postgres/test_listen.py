"""Hints between replicas: what is told, what is heard, and what happens when the connection for it breaks."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import asyncpg
import pytest

from perdure.domain.model import Change, Status
from perdure.store.postgres import PostgresStore, listen, url
from perdure.store.postgres.listen import CHANNEL, Hints
from perdure.testing.postgresql import Cluster
from tests.relay import Relay
from tests.store.support import new_task
from tests.support import PATIENCE, eventually


def change(seq: int, status: Status = Status.WORKING, *, runnable: bool = False, cancel: bool = False) -> Change:
    return Change(f"tsk_{seq}", seq, status, runnable, cancel)


class Replica:
    """Hints, and what they heard."""

    def __init__(self, database: str) -> None:
        self.heard: list[Change | None] = []
        self.hints = Hints(url.parse(database), self.heard.append)

    async def hears(self, *wanted: Change | None) -> None:
        """Wait until it has heard that and nothing else since the last time."""
        await eventually(lambda: len(self.heard) >= len(wanted), f"{wanted} is not heard")
        heard = self.heard[:]
        self.heard.clear()
        assert heard == [*wanted]


@asynccontextmanager
async def listening(database: str) -> AsyncGenerator[Replica]:
    replica = Replica(database)
    await replica.hints.open()
    try:
        yield replica
    finally:
        await replica.hints.close()


@pytest.fixture
async def one(empty_database: str) -> AsyncIterator[Replica]:
    async with listening(f"{empty_database}?application_name=one") as replica:
        yield replica


@pytest.fixture
async def two(empty_database: str) -> AsyncIterator[Replica]:
    async with listening(empty_database) as replica:
        yield replica


async def cut(cluster: Cluster, database: str, where: str = "true") -> None:
    name = urlsplit(database).path[1:]
    assert await asyncio.to_thread(cluster.terminate_backends, f"datname = '{name}' AND {where}")


# -- what is said ------------------------------------------------------------------------------------------------------


async def test_what_one_replica_tells_all_others_hear_and_it_does_not_hear_itself(
    one: Replica, two: Replica, empty_database: str
) -> None:
    said = [
        change(1, runnable=True),
        change(2, Status.COMPLETED),
        change(3, cancel=True),
        change(4, Status.INPUT_REQUIRED, runnable=True, cancel=True),
    ]
    async with listening(empty_database) as three:
        one.hints.tell(said)
        await two.hears(*said)
        await three.hears(*said)
        two.hints.tell([change(5)])
        await one.hears(change(5))  # and nothing before that


async def test_changes_of_one_task_become_one_that_asks_for_all_that_they_asked_for(one: Replica, two: Replica) -> None:
    one.hints.tell([change(1, runnable=True), change(2)])
    one.hints.tell([change(1, cancel=True)])
    one.hints.tell([change(1, Status.CANCELLED), change(3)])
    await two.hears(change(2), change(1, Status.CANCELLED, runnable=True, cancel=True), change(3))


async def test_more_than_a_message_can_hold_goes_out_in_several(
    one: Replica, two: Replica, empty_database: str
) -> None:
    payloads: list[str] = []

    def keep(_: object, __: int, ___: str, payload: object) -> None:
        payloads.append(str(payload))

    said = [Change(f"tsk_{'x' * 60}{seq}", 10**12 + seq, Status.INPUT_REQUIRED) for seq in range(1_000)]
    listener = await asyncpg.connect(empty_database)
    try:
        await listener.add_listener(CHANNEL, keep)
        one.hints.tell(said)
        await two.hears(*said)
        await eventually(lambda: len(payloads) > 10, "they are on their way")
    finally:
        await listener.close()
    assert all(7_000 < len(payload.encode()) < 8_000 for payload in payloads[:-1])


async def test_more_than_can_wait_becomes_a_word_to_look(
    one: Replica, two: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen, "_KEPT", 3)
    one.hints.tell([change(seq) for seq in range(4)])
    one.hints.tell([change(4)])
    await two.hears(None, change(4))
    one.hints.tell([change(5)])
    await two.hears(change(5))


@pytest.mark.parametrize(
    "payload",
    [
        "", "perdure", "{}", "[]", '{"a": 1}', "12", '"abc"', '["them"]', '["them",1]', '["them",[]]', "[[[[",
        '["them",[1,"tsk_1","dreaming",0]]', '["them",["one","tsk_1","working",0]]', '["them",[1,"tsk_1","working"]]',
        '["them",[1,"tsk_1","working","x"]]', '["them",[Infinity,"tsk_1","working",0]]', "[" * 7_000,
    ],
)  # fmt: skip
async def test_what_others_say_on_the_channel_is_ignored(two: Replica, empty_database: str, payload: str) -> None:
    other = await asyncpg.connect(empty_database)
    try:
        for each in (payload, '["them",[7,"tsk_7","working",1]]'):
            await other.execute("SELECT pg_notify($1, $2)", CHANNEL, each)
    finally:
        await other.close()
    await two.hears(change(7, runnable=True))


async def test_a_store_tells_its_listeners_what_others_commit_and_when_it_may_have_missed_some(
    database: str, postgres: Cluster
) -> None:
    heard: list[Change | None] = []
    store, other = PostgresStore(f"{database}?application_name=one"), PostgresStore(database)
    await store.open()
    await other.open()
    try:
        store.subscribe(heard.append)
        task = await other.create(new_task())
        await eventually(lambda: heard == [Change(task.id, task.seq, Status.WORKING, runnable=True)], "it hears")
        await cut(postgres, database, "application_name = 'one'")
        await eventually(lambda: heard[1:] == [None], "it is told to look")
    finally:
        await store.close()
        await other.close()


# -- when the connection breaks ----------------------------------------------------------------------------------------


async def test_after_a_broken_connection_everybody_is_told_to_look_and_what_was_to_be_said_is_said(
    postgres: Cluster, one: Replica, two: Replica, empty_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    await cut(postgres, empty_database)
    await one.hears(None)
    await two.hears(None)
    one.hints.tell([change(1, runnable=True)])
    await two.hears(change(1, runnable=True))
    assert not caplog.records, "it was over before anybody could have noticed"


async def test_it_tries_until_it_can_connect_and_says_so_once(
    postgres: Cluster,
    one: Replica,
    two: Replica,
    empty_database: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listen, "_PAUSES", (0.01,))
    monkeypatch.setattr(listen, "_SAID_AFTER", 0.1)
    name = urlsplit(empty_database).path[1:]
    await asyncio.to_thread(postgres.sql, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    await cut(postgres, empty_database, "application_name = 'one'")
    await eventually(lambda: bool(caplog.records), "it says that it can't connect")
    one.hints.tell([change(1, runnable=True)])
    one.hints.tell([change(1, cancel=True)])
    await asyncio.to_thread(postgres.sql, f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    await one.hears(None)
    await two.hears(change(1, runnable=True, cancel=True))
    lost, found = caplog.records
    assert lost.levelno == found.levelno == logging.WARNING
    assert "can't be used" in lost.getMessage()
    assert "workers look by themselves" in lost.getMessage()
    assert "can be used again" in found.getMessage()


def relayed(database: str, cut_at: bytes | None = None) -> Relay:
    there = urlsplit(database)
    assert there.hostname is not None
    assert there.port is not None
    return Relay(there.hostname, there.port, cut_at=cut_at)


def through(relay: Relay, database: str) -> str:
    there = urlsplit(database)
    return there._replace(netloc=f"{there.netloc.rpartition('@')[0]}@127.0.0.1:{relay.port}").geturl()


async def test_a_connection_that_goes_dead_without_a_word_is_found_out_by_using_it(
    two: Replica, empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen, "_CHECK", 0.05)
    monkeypatch.setattr(listen, "_SEND", 1.5)
    async with relayed(empty_database) as relay, listening(through(relay, empty_database)) as far:
        relay.die()
        await far.hears(None)
        far.hints.tell([change(1)])
        await two.hears(change(1))
        relay.die()
        far.hints.tell([change(2)])  # is lost on its way, and said again
        await two.hears(change(2))


async def test_a_connection_that_breaks_while_it_is_made_leaves_nothing_behind(empty_database: str) -> None:
    async with relayed(empty_database, b"LISTEN") as relay:
        before = asyncio.all_tasks()
        replica = Replica(through(relay, empty_database))
        with pytest.raises(asyncpg.ConnectionDoesNotExistError):
            await replica.hints.open()
        await replica.hints.close()
        assert not replica.hints.connected.is_set()
        await eventually(lambda: len(asyncio.all_tasks() - before) <= 2, "only the relay's own are left")


# -- the end -----------------------------------------------------------------------------------------------------------


async def test_what_waits_is_said_before_it_hangs_up_and_nothing_is_left_behind(
    postgres: Cluster, two: Replica, empty_database: str
) -> None:
    before = asyncio.all_tasks()
    async with listening(empty_database) as replica:
        replica.hints.tell([change(1)])
    await two.hears(change(1))
    assert asyncio.all_tasks() == before

    async def hung_up() -> bool:
        seen = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{urlsplit(empty_database).path[1:]}'"
        return await asyncio.to_thread(postgres.sql, seen) == "1"

    await eventually(hung_up, "its connection is closed")


async def test_it_may_be_closed_twice_and_opened_again(two: Replica, empty_database: str) -> None:
    replica = Replica(empty_database)
    await replica.hints.close()
    for number in range(2):
        await replica.hints.open()
        replica.hints.tell([change(number)])
        await two.hears(change(number))
        await replica.hints.close()
        await replica.hints.close()


async def test_it_can_be_closed_while_it_can_not_connect(
    postgres: Cluster, empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen, "_PAUSES", (3600.0,))
    before = asyncio.all_tasks()
    async with listening(empty_database) as replica:
        await cut(postgres, empty_database)
        await eventually(lambda: not replica.hints.connected.is_set(), "it notices")
        replica.hints.tell([change(1)])
        async with asyncio.timeout(PATIENCE):
            await replica.hints.close()
    assert asyncio.all_tasks() == before
