"""What operators see of a store: workers, queues, one task, and nothing of what anybody wrote or answered."""

import json
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from click.testing import CliRunner

from perdure.domain import ids, lifecycle
from perdure.domain.errors import InputKeyReused, JournalMismatch
from perdure.domain.journal import Entry, EntryState, Verb, Waits
from perdure.domain.lifecycle import INTERNAL_ERROR
from perdure.domain.model import (
    Asked,
    Cancelled,
    Claim,
    Completed,
    Demand,
    Failed,
    Failure,
    NewTask,
    Outcome,
    Status,
)
from perdure.engine import lease
from perdure.ops import look, stores
from perdure.ops.cli import main
from perdure.store.base import Store
from perdure.store.keys import KeyRing
from tests.store.support import ADA, new_task
from tests.support import eventually

SECRET: Final = "swordfish"
HOUR: Final = 3_600_000
REPORT: Final = "tools/call:report"
QUESTION: Final[dict[str, Any]] = {"method": "elicitation/create", "params": {"message": SECRET}}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'tasks.db'}"


def filled(url: str, fill: Callable[[Store], Awaitable[str]], keys: KeyRing | None = None) -> str:
    """Do something to a store, which is closed again."""

    async def run() -> str:
        store = stores.open_store(url, keys=keys)
        await store.open()
        try:
            return await fill(store)
        finally:
            await store.close()

    return anyio.run(run)


def printed(*command: str) -> str:
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    assert SECRET not in done.output
    return done.output


def refused(*command: str) -> str:
    done = CliRunner().invoke(main, command)
    assert done.exit_code != 0
    return done.output.strip()


async def in_the_middle(store: Store) -> str:
    """A task that has done a step, failed once, and asks two questions, of which one is answered."""
    params: dict[str, Any] = {"arguments": {"password": SECRET}}
    task = await store.create(minted(params))
    session = await store.open_session(HOUR, {**lease.identity(), "handlers": [REPORT]})
    claim = await claimed(store, session.id)
    await store.record(claim, Entry("10", Verb.STEP, "late", EntryState.FAILED, {"message": SECRET}))
    await store.retry(claim, 1, "ConnectionError: refused", failed=["10"])
    claim = await claimed(store, session.id)
    await store.report(claim, SECRET)
    await store.record(claim, Entry("10", Verb.STEP, "ten", EntryState.DONE, SECRET))
    await store.record(claim, Entry("9", Verb.STEP, "nine", EntryState.DONE, {"text": SECRET}))
    external = Entry("11", Verb.EXTERNAL, "job", EntryState.STARTED, {"token": SECRET})
    asked = {key: Asked(QUESTION, "12") for key in ("name", "age")}
    await store.park(claim, Waits(asked=asked, begun=((external, HOUR),), places=frozenset({"11"})))
    await store.answer(ADA, task.id, {"name": SECRET})
    return task.id


def minted(params: dict[str, Any] | None = None) -> NewTask:
    """A task under an id such as users know."""
    return replace(new_task(params=params), id=ids.mint(secrets.token_bytes))


async def claimed(store: Store, session: str) -> Claim:
    claims: list[Claim] = []

    async def due() -> bool:
        claims.extend(await store.claim(session, [Demand(REPORT, 1)], 1))
        return bool(claims)

    await eventually(due, "it is due")
    return claims[0]


def lines_of(found: dict[str, Any]) -> list[tuple[str, ...]]:
    return [(each["place"], each["verb"], each["name"], each["state"]) for each in found["journal"]]


def test_a_task_is_shown_without_what_it_is_about(url: str) -> None:
    task_id = filled(url, in_the_middle)
    found = json.loads(printed("inspect", task_id, "--store", url, "--json"))
    assert (found["status"], found["handler"]) == ("input_required", REPORT)
    assert {name: found["run"][name] for name in ("state", "attempt", "failures", "deaths", "session")} == {
        "state": "waiting",
        "attempt": 2,
        "failures": 1,
        "deaths": 0,
        "session": None,
    }
    assert lines_of(found) == [
        ("9", "step", "nine", "done"),
        ("10", "step", "ten", "done"),
        ("11", "external", "job", "started"),
        ("12", "ask", "name", "answered"),
        ("12", "ask", "age", "outstanding"),
    ]
    assert [each.get("wake_at") for each in found["journal"]] == [None, None, found["run"]["wake_at"], None, None]
    assert (found["error"], found["tool_error"]) == (None, False)
    (event,) = found["timeline"]
    assert (event["kind"], event["detail"]) == ("retry", "ConnectionError: refused")


def test_a_task_is_shown_in_words_too(url: str) -> None:
    task_id = filled(url, in_the_middle)
    lines = printed("inspect", task_id, "--store", url).splitlines()
    assert lines[:3] == [f"task      {task_id}", f"tool      {REPORT}", "status    input_required"]
    assert "attempt   2 (failures 1, deaths of workers 0)" in lines
    assert any(line.startswith("run       waiting until 20") for line in lines)
    assert "9      step      nine  done" in lines
    assert "12     ask       age   outstanding" in lines
    assert any(line.endswith("Z  attempt failed: ConnectionError: refused") for line in lines)


async def over(store: Store) -> str:
    task = await store.create(minted())
    session = await store.open_session(HOUR, {})
    claim = await claimed(store, session.id)
    await store.finish(claim, Completed({"content": [{"type": "text", "text": SECRET}]}))
    await store.close_session(session.id)
    return task.id


def test_a_task_that_is_over_has_no_run(url: str) -> None:
    task_id = filled(url, over)
    assert json.loads(printed("inspect", task_id, "--store", url, "--json"))["run"] is None
    lines = printed("inspect", task_id, "--store", url).splitlines()
    assert "status    completed" in lines
    assert lines[-3:] == ["no step or question", "", "no event"]


@pytest.mark.parametrize(
    "error",
    [
        lifecycle.exhausted(3).error,
        Failure(INTERNAL_ERROR, str(JournalMismatch("3", "has step 'a'", "ended without coming there"))),
        Failure(INTERNAL_ERROR, str(InputKeyReused("name"))),
        Failure(INTERNAL_ERROR, "The journal of a task has at most 10000 entries, and this one is full"),
        Failure(INTERNAL_ERROR, "Internal error"),
    ],
    ids=["exhausted", "journal mismatch", "key reused", "journal full", "internal error"],
)
def test_why_perdure_failed_a_task_is_said(url: str, error: Failure) -> None:
    task_id = filled(url, ended(Failed(error)))
    assert json.loads(printed("inspect", task_id, "--store", url, "--json"))["error"] == {
        "code": -32603,
        "message": error.message,
    }
    lines = printed("inspect", task_id, "--store", url).splitlines()
    assert lines[2:4] == ["status    failed", f"error     -32603: {error.message}"]


def test_so_it_is_when_the_task_expired(url: str) -> None:
    async def expire(store: Store) -> str:
        task = await store.create(replace(minted(), ttl_ms=1))

        async def over() -> bool:
            await store.expire(10)
            return (await store.inspect(task.id)).task.status is Status.FAILED

        await eventually(over, "it expires")
        return task.id

    lines = printed("inspect", filled(url, expire), "--store", url).splitlines()
    assert "error     -32603: The task expired: its ttl ran out before it finished" in lines


@pytest.mark.parametrize(
    "error",
    [
        Failure(-32000, SECRET),
        Failure(INTERNAL_ERROR, SECRET),
        Failure(INTERNAL_ERROR, f"Internal error: {SECRET}"),
        Failure(INTERNAL_ERROR, "Internal error", {"why": SECRET}),
        Failure(7, "Internal error"),
    ],
)
def test_of_a_tools_own_error_only_the_code_is_said(url: str, error: Failure) -> None:
    task_id = filled(url, ended(Failed(error)))
    assert f"error     {error.code}, the tool's own" in printed("inspect", task_id, "--store", url).splitlines()


def test_a_tool_error_is_told_from_a_result(url: str) -> None:
    task_id = filled(url, ended(Completed({"content": [{"type": "text", "text": SECRET}], "isError": True})))
    assert "status    completed, tool error" in printed("inspect", task_id, "--store", url).splitlines()


def ended(outcome: Outcome, *, after: Callable[[Store, Claim], Awaitable[object]] | None = None) -> Any:
    async def fill(store: Store) -> str:
        task = await store.create(minted())
        session = await store.open_session(HOUR, {})
        claim = await claimed(store, session.id)
        if after is not None:
            await after(store, claim)
        await store.finish(claim, outcome)
        return task.id

    return fill


async def half_done(store: Store, claim: Claim) -> None:
    await store.record(claim, Entry("0", Verb.SLEEP, "", EntryState.STARTED), wake_in_ms=1)
    await store.record(claim, Entry("1", Verb.STEP, "charge", EntryState.STARTED))
    await store.record(claim, Entry("2", Verb.EXTERNAL, "job", EntryState.FAILED), wake_in_ms=HOUR)
    await store.record(claim, Entry("3", Verb.SLEEP, "", EntryState.STARTED), wake_in_ms=HOUR)
    await anyio.sleep(0.002)


def test_in_a_task_that_is_over_nothing_is_due_any_more(url: str) -> None:
    task_id = filled(url, ended(Cancelled(), after=half_done))
    found = json.loads(printed("inspect", task_id, "--store", url, "--json"))
    assert lines_of(found) == [
        ("0", "sleep", "", "over"),
        ("1", "step", "charge", "interrupted"),
        ("2", "external", "job", "failed"),
        ("3", "sleep", "", "interrupted"),
    ]
    assert not any("wake_at" in each for each in found["journal"])


async def overslept(store: Store) -> str:
    """A sleep that is over, a question whose time ran out, a worker that died, and one that is gone and holds it."""
    task = await store.create(minted())
    first = await store.open_session(HOUR, {})
    claim = await claimed(store, first.id)
    await store.record(claim, Entry("0", Verb.SLEEP, "", EntryState.STARTED), wake_in_ms=1)
    await store.park(claim, Waits(asked={"name": Asked(QUESTION, "1", timeout_ms=1)}, places=frozenset({"0"})))
    await claimed(store, first.id)
    keeper = await store.open_session(HOUR, {})
    assert await store.take_over([first.id], keep=keeper.id) == 1
    gone = await store.open_session(HOUR, {**lease.identity(), "started": 1, "handlers": [REPORT]})
    await claimed(store, gone.id)
    return task.id


def test_what_has_come_due_is_over_and_a_process_that_is_gone_is_said_so(url: str) -> None:
    task_id = filled(url, overslept)
    found = json.loads(printed("inspect", task_id, "--store", url, "--json"))
    assert lines_of(found) == [("0", "sleep", "", "over"), ("1", "ask", "name", "timed out")]
    assert found["run"]["process"]["state"] == "gone"
    lines = printed("inspect", task_id, "--store", url).splitlines()
    assert any(line.startswith("run       held by ") and line.endswith(", process gone)") for line in lines)
    assert any(line.endswith("Z  question timed out: name") for line in lines)
    assert any(line.endswith("Z  worker died (1 of 10)") for line in lines)


async def unwanted(store: Store) -> str:
    """Ready, and the only worker has something else."""
    task = await store.create(minted())
    await store.open_session(HOUR, {**lease.identity(), "handlers": ["tools/call:other"]})
    return task.id


async def wanted(store: Store) -> str:
    await store.open_session(HOUR, {**lease.identity(), "handlers": [REPORT]})
    return (await store.create(minted())).id


def test_a_run_that_no_worker_has_a_handler_for_is_said_so(url: str) -> None:
    lines = printed("inspect", filled(url, unwanted), "--store", url).splitlines()
    assert f"run       ready, and no worker has {REPORT}" in lines
    assert "run       ready" in printed("inspect", filled(url, wanted), "--store", url).splitlines()


async def busy(store: Store) -> str:
    """One handler is served and one is not; a worker that is gone left a session behind."""
    await in_the_middle(store)
    await store.create(new_task())
    for _ in range(2):
        await store.create(new_task("other"))
    await store.open_session(HOUR, {**lease.identity(), "started": 1, "handlers": ["tools/call:other"]})
    lapsing = await store.open_session(1, {"host": "elsewhere", "pid": 7, "handlers": ["tools/call:other"]})

    async def lapsed() -> bool:
        return {session.id: over for session, over in await store.sessions()}[lapsing.id]

    await eventually(lapsed, "it lapses")
    return lapsing.id


def test_a_status_shows_who_works_and_what_waits_and_what_nobody_can_run(url: str) -> None:
    lapsed = filled(url, busy)
    found = json.loads(printed("status", "--store", url, "--json"))
    assert found["store"] == url
    states = {(each["host"] == "elsewhere", each["state"]) for each in found["workers"]}
    assert states == {(False, "alive"), (False, "gone"), (True, "lapsed")}
    assert {each["handler"]: (each["ready"], each["held"], each["waiting"]) for each in found["handlers"]} == {
        "tools/call:other": (2, 0, 0),
        REPORT: (1, 0, 1),
    }
    assert found["unclaimable"] == ["tools/call:other"], "those who have it are gone or have lapsed"
    lines = printed("status", "--store", url).splitlines()
    assert lines[0] == f"store {url}"
    assert lines[-1] == "unclaimable: no worker has tools/call:other"
    assert any(line.startswith(lapsed) and "elsewhere:7" in line and " lapsed " in line for line in lines)


def test_an_empty_store_has_nothing_to_show(url: str) -> None:
    async def nothing(_: Store) -> str:
        return ""

    filled(url, nothing)
    assert printed("status", "--store", url).splitlines() == [f"store {url}", "", "no worker", "", "no open task"]


def test_a_store_that_is_not_there_is_not_made(url: str, tmp_path: Path) -> None:
    for command in (("status", "--store", url), ("inspect", "tsk_" + "a" * 32, "--store", url)):
        assert refused(*command) == f"perdure: there is no file {tmp_path / 'tasks.db'}"
    assert not list(tmp_path.iterdir())


def test_a_task_that_is_not_there_is_said_so(url: str) -> None:
    filled(url, busy)
    assert refused("inspect", "tsk_" + "a" * 32, "--store", url) == "perdure: Task not found"
    assert refused("inspect", "nonsense", "--store", url) == "perdure: Malformed task id"


def test_a_status_needs_a_store() -> None:
    assert "Say which store: MODULE:APP, or --store URL, or PERDURE_STORE in the environment." in refused("status")


def test_names_can_not_reach_the_terminal() -> None:
    worker: dict[str, Any] = {"session": "s1", "host": "h\x1b[2J\n", "pid": 1, "state": "gone", "handlers": []}
    found: dict[str, Any] = {"store": "s", "workers": [worker], "handlers": [], "unclaimable": []}
    lines = list(look.say_status(found))
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize(
    ("store", "shown"),
    [
        ("sqlite:////var/lib/tasks.db", "sqlite:////var/lib/tasks.db"),
        ("postgresql://me:secret@db.example/tasks", "postgresql://db.example/tasks"),
        ("postgresql://me:s@c@db.example/tasks?password=secret", "postgresql://db.example/tasks"),
    ],
)
def test_a_store_is_shown_without_its_secrets(store: str, shown: str) -> None:
    assert stores.described(store) == shown
