"""Each worker says under which key its process seals; processes that differ in whether they do say so in the log."""

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest

from perdure.domain.model import JSON, Session
from perdure.engine import lease, sealers
from perdure.engine.runtime import Options, Runtime
from perdure.engine.sealers import Company, Sealing, about, at_work, described, process_of, sealing_of, summary
from perdure.store.base import Store
from tests.engine.rigged import Rigged
from tests.support import eventually

HERE = lease.identity()


def session(sealing: JSON, **info: JSON) -> Session:
    return Session("s", 0, {"host": "db1", "pid": 7, "sealing": sealing, **info})


@pytest.mark.parametrize("sealing", ["new", False, None])
def test_what_a_session_says_is_understood(sealing: Sealing) -> None:
    assert sealing_of(Session("s", 0, {**about(sealing)})) == sealing


@pytest.mark.parametrize("said", [True, 7, ["new"], None])
def test_what_is_none_of_what_a_worker_says_is_as_good_as_nothing(said: Any) -> None:
    assert sealing_of(session(said)) is None


def test_it_is_put_into_words() -> None:
    assert [described(each) for each in ("new", False, None)] == [
        "sealed under the key 'new'",
        "stored in the clear",
        "stored in a way that is not known",
    ]
    assert process_of(session("new")) == "db1:7"


def test_who_may_still_write_is_at_work_and_who_is_surely_dead_is_not() -> None:
    elsewhere, here = session("new"), Session("s", 0, HERE)
    dead = Session("s", 0, {**HERE, "started": 1})
    sessions = [(elsewhere, False), (elsewhere, True), (here, False), (here, True), (dead, False), (dead, True)]
    assert at_work(sessions) == (elsewhere, here, here)


def test_an_operator_is_told_of_those_that_differ_and_else_in_one_line() -> None:
    assert [*summary([("new", "a:1"), ("new", "b:2")])] == [
        "what is in tasks is sealed under the key 'new' by every worker"
    ]
    assert [*summary([(False, "a:1")])] == ["what is in tasks is stored in the clear by every worker"]
    assert [*summary([("new", "a:1"), (False, "b:2"), ("new", "c:3"), (None, "d:4")])] == [
        "what is in tasks is sealed under the key 'new' by a:1, c:3",
        "what is in tasks is stored in the clear by b:2",
        "what is in tasks is stored in a way that is not known by d:4",
    ]
    assert [*summary([])] == [*summary([(None, "a:1")])] == []


# -- the log -----------------------------------------------------------------------------------------------------------


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


async def company(store: Store, own: str | bool, *others: JSON) -> Company:
    for other in others:
        await store.open_session(60_000, session(other).info)
    watch = Company(store, own)
    for _ in range(2):
        await watch.look()
    return watch


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (
            "new",
            "what is in tasks is sealed under the key 'new' by this process, and stored in the clear by db1:7: "
            "give all of them the keys, or none",
        ),
        (
            False,
            "what is in tasks is stored in the clear by this process, and sealed under the key 'old' by db1:7: "
            "give all of them the keys, or none",
        ),
    ],
)
async def test_who_seals_and_who_does_not_hear_of_each_other_once(
    store: Store, own: str | bool, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    await company(store, own, "old", False, None)
    assert warnings(caplog) == [said]


@pytest.mark.parametrize(("own", "others"), [("new", ("new", "old")), (False, (False,))])
async def test_who_only_has_another_first_key_is_in_the_middle_of_a_change(
    store: Store, own: str | bool, others: tuple[JSON, ...], caplog: pytest.LogCaptureFixture
) -> None:
    await company(store, own, *others)
    assert warnings(caplog) == []


async def test_a_store_that_can_not_be_used_just_now_is_looked_at_again(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sealers, "_LOOK_EVERY", 0)
    await store.open_session(60_000, session("old").info)
    rigged = Rigged(store)
    rigged.fail("sessions", 2)
    watching = asyncio.create_task(Company(rigged, own=False).keep_watch())
    await eventually(lambda: bool(warnings(caplog)), "it gave up")
    watching.cancel()


# -- a process ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sealing", ["new", False, None])
async def test_a_process_says_in_its_log_and_its_session_what_it_seals_under(
    store: Store, sealing: Sealing, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    rigged = Rigged(store)
    begun = rigged.gate_after("open_session")
    async with Runtime(rigged, {}, replace(Options(), sealing=sealing)).running():
        await begun.reached()
        ((session, _),) = await store.sessions()
        assert sealing_of(session) == sealing
        begun.open()
    said = [line for line in caplog.messages if line.startswith("what is in tasks is ")]
    assert said == ([] if sealing is None else [f"what is in tasks is {described(sealing)}"])
