"""What operators see of one task, and nothing of what anybody wrote or answered."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import anyio
import pytest
from click.testing import CliRunner

from perdure.domain import ids, lifecycle, verdicts
from perdure.domain.errors import InputKeyReused, JournalMismatch
from perdure.domain.journal import Entry, EntryState, Verb, Waits
from perdure.domain.lifecycle import INTERNAL_ERROR
from perdure.domain.model import (
    Asked,
    Cancelled,
    Claim,
    Completed,
    Failed,
    Failure,
    Outcome,
    Status,
)
from perdure.domain.timeline import EventKind
from perdure.engine import lease
from perdure.ops.cli import main
from perdure.ops.operating import words
from perdure.store.base import Store
from tests.ops.operating.support import (
    HOUR,
    QUESTION,
    REPORT,
    SECRET,
    busy,
    claimed,
    in_the_middle,
    lines_of,
    minted,
    opened,
    over,
    printed,
    refused,
)
from tests.support import eventually


def test_a_task_is_shown_without_what_it_is_about(url: str) -> None:
    task_id = opened(url, in_the_middle)
    found = json.loads(printed("tasks", "show", task_id, "--store", url, "--json"))
    assert (found["status"], found["tool"]) == ("input_required", REPORT)
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
    task_id = opened(url, in_the_middle)
    lines = printed("tasks", "show", task_id, "--store", url).splitlines()
    head = [f"task      {task_id}", f"tool      {REPORT}", "owner     acme / ada", "status    input_required"]
    assert lines[:4] == head
    assert "expires   never" in lines
    assert "attempt   2 (failures 1, deaths of workers 0)" in lines
    assert any(line.startswith("run       waiting until 20") for line in lines)
    assert "9      step      nine  done" in lines
    assert "12     ask       age   outstanding" in lines
    assert any(line.endswith("Z  attempt failed: ConnectionError: refused") for line in lines)


def test_a_task_that_is_over_has_no_run(url: str) -> None:
    task_id = opened(url, over)
    assert json.loads(printed("tasks", "show", task_id, "--store", url, "--json"))["run"] is None
    lines = printed("tasks", "show", task_id, "--store", url).splitlines()
    assert "status    completed" in lines
    assert lines[-3:] == ["no step or question", "", "no event"]


@pytest.mark.parametrize(
    "error",
    [
        lifecycle.exhausted(3).error,
        Failure(INTERNAL_ERROR, str(JournalMismatch("3", "has step 'a'", "ended without coming there"))),
        Failure(INTERNAL_ERROR, str(InputKeyReused("name"))),
        Failure(INTERNAL_ERROR, verdicts.JOURNAL_FULL.format(most=10_000)),
        Failure(INTERNAL_ERROR, verdicts.INTERNAL),
    ],
    ids=["exhausted", "journal mismatch", "key reused", "journal full", "internal error"],
)
def test_why_perdure_failed_a_task_is_said(url: str, error: Failure) -> None:
    task_id = opened(url, ended(Failed(error)))
    assert json.loads(printed("tasks", "show", task_id, "--store", url, "--json"))["error"] == {
        "code": -32603,
        "message": error.message,
    }
    lines = printed("tasks", "show", task_id, "--store", url).splitlines()
    assert lines[3:5] == ["status    failed", f"error     -32603: {error.message}"]


def test_so_it_is_when_the_task_expired(url: str) -> None:
    async def expire(store: Store) -> str:
        task = await store.create(replace(minted(), ttl_ms=1))

        async def over() -> bool:
            await store.expire(10)
            return (await store.inspect(task.id)).task.status is Status.FAILED

        await eventually(over, "it expires")
        return task.id

    lines = printed("tasks", "show", opened(url, expire), "--store", url).splitlines()
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
    task_id = opened(url, ended(Failed(error)))
    assert f"error     {error.code}, the tool's own" in printed("tasks", "show", task_id, "--store", url).splitlines()


def test_a_tool_error_is_told_from_a_result(url: str) -> None:
    task_id = opened(url, ended(Completed({"content": [{"type": "text", "text": SECRET}], "isError": True})))
    assert "status    completed, tool error" in printed("tasks", "show", task_id, "--store", url).splitlines()


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
    task_id = opened(url, ended(Cancelled(), after=half_done))
    found = json.loads(printed("tasks", "show", task_id, "--store", url, "--json"))
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
    task_id = opened(url, overslept)
    found = json.loads(printed("tasks", "show", task_id, "--store", url, "--json"))
    assert lines_of(found) == [("0", "sleep", "", "over"), ("1", "ask", "name", "timed out")]
    assert found["run"]["process"]["state"] == "gone"
    lines = printed("tasks", "show", task_id, "--store", url).splitlines()
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
    lines = printed("tasks", "show", opened(url, unwanted), "--store", url).splitlines()
    assert f"run       ready, and no worker has {REPORT}" in lines
    assert "run       ready" in printed("tasks", "show", opened(url, wanted), "--store", url).splitlines()


def test_a_task_that_is_not_there_is_said_so(url: str) -> None:
    opened(url, busy)
    look = "perdure tasks ls shows which there are"
    for text in ("tsk_" + "a" * 32, "tsk_zzz"):
        assert refused("tasks", "show", text, "--store", url) == f"perdure: There is no task {text}: {look}"
    assert refused("tasks", "show", "nonsense", "--store", url) == f"perdure: nonsense is no task id: {look}"
    said = refused("tasks", "show", "postgresql://ada:swordfish@db", "--store", url)
    assert said == f"perdure: … is no task id: {look}"


def test_a_task_is_found_by_what_logs_show_of_its_id(url: str) -> None:
    task_id = opened(url, over)
    for text in (ids.abbreviated(task_id), task_id[:12], f"{task_id[:12]}..."):
        assert printed("tasks", "show", text, "--store", url).startswith(f"task      {task_id}\n")


def test_the_beginning_of_several_ids_is_none(url: str) -> None:
    opened(url, busy)
    assert refused("tasks", "show", "tsk_…", "--store", url) == ("perdure: Several ids begin with tsk_: say more of it")


def test_an_instant_that_no_calendar_has_is_shown_as_it_is(url: str) -> None:
    async def for_ages(store: Store) -> str:
        return (await store.create(replace(minted(), ttl_ms=2**52))).id

    found = json.loads(printed("tasks", "show", task_id := opened(url, for_ages), "--store", url, "--json"))
    assert found["expires_at"] == found["created_at"] + 2**52
    assert f"expires   {found['expires_at']} ms" in printed("tasks", "show", task_id, "--store", url).splitlines()


def test_contents_are_shown_to_who_asks_for_them_and_no_token_is(url: str) -> None:
    task_id = opened(url, in_the_middle)
    done = CliRunner().invoke(main, ["tasks", "show", task_id, "--store", url, "--contents", "--json"])
    found = json.loads(done.output)["contents"]
    question = {"request": QUESTION, "response": None}
    assert found == {
        "params": {"arguments": {"password": SECRET}},
        "message": SECRET,
        "result": None,
        "error": None,
        "values": {"9": {"text": SECRET}, "10": SECRET, "11": None},
        "questions": {"name": {**question, "response": SECRET}, "age": question},
    }
    assert SECRET in CliRunner().invoke(main, ["tasks", "show", task_id, "--store", url, "--contents"]).output


def test_of_work_elsewhere_what_came_of_it_is_content_and_its_token_is_not(url: str) -> None:
    async def settled(store: Store) -> str:
        task = await store.create(minted())
        claim = await claimed(store, (await store.open_session(HOUR, {})).id)
        entry = Entry("0", Verb.EXTERNAL, "job", EntryState.STARTED, {"token": "sesame"})
        await store.park(claim, Waits(begun=((entry, None),), places=frozenset({"0"})))
        await store.settle(task.id, "0", "sesame", EntryState.DONE, "rendered")
        return task.id

    done = CliRunner().invoke(main, ["tasks", "show", opened(url, settled), "--store", url, "--contents", "--json"])
    assert json.loads(done.output)["contents"]["values"] == {"0": "rendered"}
    assert "sesame" not in done.output


def test_every_event_has_words() -> None:
    assert set(words.EVENTS) == set(EventKind)
