"""A database that hangs, breaks or moves: who waits for how long, and which connections are used again.

And what the log says of it. With batches of a kind of their own, against a real server.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from urllib.parse import urlsplit

import pytest

from perdure.domain.errors import StoreUnavailable
from perdure.store.postgres import lanes, url
from perdure.store.postgres.jobs import Done, Kind
from perdure.store.postgres.lanes import Lanes
from perdure.store.postgres.url import Connection
from perdure.testing.postgresql import Cluster
from tests.store.postgres.support import SECRET
from tests.support import PATIENCE, eventually

WHO = "SELECT pg_backend_pid()"


async def run(connection: Connection, wishes: Sequence[str]) -> Sequence[Done]:
    """Each wish is a statement, and its value what is wanted."""
    return [Done(await connection.fetchval(wish)) for wish in wishes]


@pytest.fixture
async def served(empty_database: str) -> AsyncIterator[Lanes]:
    made = Lanes(url.parse(f"{empty_database}?target_session_attrs=any").connect, lambda _: None, count=2)
    made.open()
    yield made
    await made.close()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert not [record for record in caplog.records if record.exc_info], "no traceback for what is nobody's bug"
    return [record.getMessage() for record in caplog.records]


async def backends(served: Lanes) -> set[int]:
    """The server's processes that serve two batches at once."""
    meeting = asyncio.Barrier(2)

    async def met(connection: Connection, wishes: Sequence[str]) -> Sequence[Done]:
        await meeting.wait()
        return await run(connection, wishes)

    kind = Kind(met, 1, 2)
    both = set(await asyncio.gather(*(served.do(kind, WHO) for _ in range(2))))
    assert len(both) == 2
    return both


async def test_whoever_is_impatient_is_told_so_while_the_batch_goes_on_and_nobody_else_is(
    served: Lanes, caplog: pytest.LogCaptureFixture
) -> None:
    quick, patient = Kind(run, 1, 1, patience=0.2), Kind(run, 1, 1)
    waiting = asyncio.create_task(served.do(patient, "SELECT 'patient' FROM pg_sleep(2)"))
    under_way = asyncio.create_task(served.do(quick, "SELECT 'late' FROM pg_sleep(2)"))
    behind = asyncio.create_task(served.do(quick, "SELECT 'never'"))
    for impatient in (under_way, behind):
        with pytest.raises(StoreUnavailable):
            await impatient
    assert not waiting.done()
    assert await waiting == "patient"
    assert await served.do(patient, "SELECT 'again'") == "again"
    lost, found = said(caplog)
    assert lost.endswith("can't be used, and is tried again until it can: it does not answer in time")
    assert "can be used again" in found


async def test_whoever_waits_for_a_connection_in_vain_is_told_so_too(served: Lanes) -> None:
    quick, slow = Kind(run, 1, 1, patience=0.2), Kind(run, 1, 2)
    busy = [asyncio.create_task(served.do(slow, "SELECT 'done' FROM pg_sleep(1.5)")) for _ in range(2)]
    await eventually(lambda: slow.running == 2, "both connections are busy")
    with pytest.raises(StoreUnavailable):
        await served.do(quick, "SELECT 'never'")
    assert await asyncio.gather(*busy) == ["done"] * 2
    assert await served.do(quick, "SELECT 'again'") == "again"


async def test_after_a_batch_without_an_answer_no_connection_from_before_is_used_again(
    served: Lanes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that hangs takes all connections with it, and each of them would cost its time anew."""
    kind = Kind(run, 1, 2)
    before = await backends(served)
    monkeypatch.setattr(lanes, "_SERVE", 0.3)
    with pytest.raises(StoreUnavailable):
        await served.do(kind, "SELECT pg_sleep(9)")
    monkeypatch.setattr(lanes, "_SERVE", PATIENCE)
    assert not before & await backends(served)
    lost, found = said(caplog)
    assert lost.endswith(": TimeoutError")
    assert "can be used again" in found


async def test_what_was_sent_to_a_server_that_hangs_is_given_up_without_a_word_to_those_who_are_served_elsewhere(
    served: Lanes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    impatient, patient = Kind(run, 1, 1, patience=0.1), Kind(run, 1, 2)
    monkeypatch.setattr(lanes, "_SERVE", 3.0)
    hanging = asyncio.create_task(served.do(patient, "SELECT pg_sleep(9)"))
    await eventually(lambda: patient.running == 1, "it is under way")
    with pytest.raises(StoreUnavailable):
        await served.do(impatient, "SELECT pg_sleep(1)")
    assert await served.do(patient, "SELECT 'elsewhere'") == "elsewhere"
    monkeypatch.setattr(lanes, "_SERVE", PATIENCE)
    elsewhere = asyncio.create_task(served.do(patient, "SELECT 'there' FROM pg_sleep(5)"))
    behind = asyncio.create_task(served.do(patient, "SELECT 'behind'"))
    with pytest.raises(StoreUnavailable):
        await hanging
    assert [await elsewhere, await behind] == ["there", "behind"]
    assert len(said(caplog)) == 2


async def test_of_a_server_that_may_no_longer_be_written_to_no_connection_is_used_again(served: Lanes) -> None:
    kind = Kind(run, 1, 2)
    before = await backends(served)
    with pytest.raises(StoreUnavailable):
        await served.do(kind, "DO $$ BEGIN SET LOCAL transaction_read_only = on; CREATE TABLE x (); END $$")
    assert not before & await backends(served)


async def test_a_connection_that_was_ended_leaves_the_other_in_use(
    served: Lanes, postgres: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    kind = Kind(run, 1, 2)
    one, other = await backends(served)
    lasting = asyncio.create_task(served.do(kind, "SELECT pg_sleep(1)"))
    doomed = asyncio.create_task(served.do(kind, "SELECT pg_terminate_backend(pg_backend_pid()) FROM pg_sleep(0.1)"))
    with pytest.raises(StoreUnavailable):
        await doomed
    assert not lasting.done()
    await lasting
    assert len({one, other} & await backends(served)) == 1
    assert len(said(caplog)) == 2


async def test_whoever_comes_just_after_a_connection_was_refused_is_told_so_at_once(
    served: Lanes, postgres: Cluster, empty_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    kind, name = Kind(run), urlsplit(empty_database).path[1:]
    await asyncio.to_thread(postgres.sql, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await served.do(kind, "SELECT 1")
    await asyncio.to_thread(postgres.sql, f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")

    async def served_again() -> bool:
        try:
            return await served.do(kind, "SELECT true")
        except StoreUnavailable:
            return False

    await eventually(served_again, "it tries again")
    lost, found = said(caplog)
    assert "not currently accepting connections" in lost
    assert "can be used again" in found


async def test_words_that_may_hold_a_password_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def connect(_: float) -> Connection:
        raise ValueError(SECRET)

    made = Lanes(connect, lambda _: None)
    made.open()
    with pytest.raises(StoreUnavailable):
        await made.do(Kind(run), "SELECT 1")
    await made.close()
    (lost,) = said(caplog)
    assert lost.endswith(": ValueError")
