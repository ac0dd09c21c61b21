"""Tasks that no live worker can run are named in the log: after a while, and not too often."""

import asyncio
from typing import Final

import pytest

from perdure.domain.model import JSON, Session
from perdure.domain.timeline import Load
from perdure.engine import lease, unclaimed
from perdure.engine.unclaimed import Watch, handlers_of, unclaimable
from perdure.store.base import Store
from tests.engine.rigged import Rigged
from tests.store.support import VirtualClock, new_task
from tests.support import eventually

REPORT: Final = "tools/call:report"
OTHER: Final = "tools/call:other"
HOUR: Final = 3_600_000


def session(handlers: JSON, *, lapsed: bool = False) -> tuple[Session, bool]:
    return Session("s", 0, {"handlers": handlers}), lapsed


def load(handler: str, ready: int) -> Load:
    return Load(handler, ready, held=1, waiting=1, oldest_ms=5 if ready else None)


def test_what_live_workers_have_is_claimable() -> None:
    sessions = [session([REPORT, 7]), session([OTHER], lapsed=True), session("nonsense"), (Session("s", 0), False)]
    assert [handlers_of(each) for each, _ in sessions] == [{REPORT}, {OTHER}, frozenset(), frozenset()]
    loads = [load(REPORT, 2), load(OTHER, 3), load("tools/call:asleep", 0)]
    assert unclaimable(loads, sessions) == (load(OTHER, 3),)
    assert unclaimable(loads, []) == (load(REPORT, 2), load(OTHER, 3))


def test_a_process_that_is_gone_has_nothing_though_its_lease_lasts() -> None:
    gone = Session("s", 0, {**lease.identity(), "started": 1, "handlers": [REPORT]})
    assert unclaimable([load(REPORT, 1)], [(gone, False)]) == (load(REPORT, 1),)
    assert unclaimable([load(REPORT, 1)], [(gone, False), session([REPORT])]) == ()


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


async def at(watch: Watch, time: Time, *moments: float) -> None:
    for moment in moments:
        time.now = moment
        await watch.look()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


async def test_a_handler_that_nobody_has_is_named_after_a_while_and_once_a_minute(
    store: Store, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("report", "report", "other"):
        await store.create(new_task(name))
    await store.open_session(HOUR, {"handlers": [OTHER]})
    watch = Watch(store, time)
    await at(watch, time, 0, 9)
    assert said(caplog) == []
    await at(watch, time, 10, 20, 69)
    assert said(caplog) == [f"no worker has {REPORT}, and 2 tasks wait for one"]
    await at(watch, time, 70)
    assert len(said(caplog)) == 2


async def test_a_worker_that_comes_back_in_time_is_not_missed(
    store: Store, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    await store.create(new_task("report"))
    watch = Watch(store, time)
    await at(watch, time, 0, 9)
    session = await store.open_session(HOUR, {"handlers": [REPORT]})
    await at(watch, time, 12)
    await store.close_session(session.id)
    await at(watch, time, 15, 24)
    assert said(caplog) == []
    await at(watch, time, 25)
    assert len(said(caplog)) == 1


async def test_a_look_at_an_idle_store_counts_nothing(rigged: Rigged, time: Time) -> None:
    await Watch(rigged, time).look()
    assert "sessions" not in rigged.calls


async def test_the_watch_goes_on_after_the_store_was_away_without_a_word(
    rigged: Rigged, clock: VirtualClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unclaimed, "_LOOK_EVERY", 0.01)
    monkeypatch.setattr(unclaimed, "_AT_MOST", 1.0)
    await rigged.create(new_task("report"))
    rigged.fail("sessions", 2)
    watching = asyncio.create_task(Watch(rigged).keep_watch())
    try:
        await eventually(lambda: rigged.calls.count("sessions") >= 4, "it gave up")
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    assert not said(caplog), "the store says so itself"
