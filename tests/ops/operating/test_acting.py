"""`perdure tasks cancel`, `retry` and `purge`: what they do, what they refuse, and when they ask."""

import json
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from perdure.domain import ids
from perdure.domain.errors import TaskExpired, TaskNotFound
from perdure.domain.journal import Entry, EntryState, Verb, Waits
from perdure.domain.model import Asked, Owner, Status, Task
from perdure.domain.operating import Which
from perdure.domain.timeline import Inspection
from perdure.ops.cli import main
from perdure.ops.operating import access, acting
from perdure.ops.operating.filters import UNFINISHED
from perdure.store.base import Store
from perdure.store.keys import KeyRing
from tests.ops.operating.support import (
    HOUR,
    QUESTION,
    SECRET,
    claimed,
    minted,
    opened,
    over,
    printed,
    refused,
)
from tests.store.sealed import OLD
from tests.store.support import ADA, BOB
from tests.support import PATIENCE, eventually


def command(url: str, *words: str, answer: str = "") -> Result:
    return CliRunner().invoke(main, ["tasks", *words, "--store", url], input=answer)


def inspected(url: str, task_id: str, keys: KeyRing | None = None) -> Inspection:
    return opened(url, lambda store: store.inspect(task_id), keys)


def got(url: str, task_id: str, owner: Owner = ADA) -> Task:
    return opened(url, lambda store: store.get(owner, task_id))


async def ready(store: Store, **options: Any) -> str:
    return (await store.create(minted(**options))).id


async def held(store: Store) -> str:
    task_id = await ready(store)
    await claimed(store, (await store.open_session(HOUR, {})).id)
    return task_id


async def asking(store: Store) -> str:
    task_id = await ready(store)
    claim = await claimed(store, (await store.open_session(HOUR, {})).id)
    await store.park(claim, Waits(asked={"name": Asked(QUESTION)}))
    return task_id


async def backing_off(store: Store) -> str:
    task_id = await ready(store)
    claim = await claimed(store, (await store.open_session(HOUR, {})).id)
    await store.retry(claim, HOUR, SECRET)
    return task_id


async def asleep(store: Store) -> str:
    task_id = await ready(store)
    claim = await claimed(store, (await store.open_session(HOUR, {})).id)
    sleep = Entry("0", Verb.SLEEP, "", EntryState.STARTED)
    await store.park(claim, Waits(begun=((sleep, HOUR),), places=frozenset({"0"})))
    return task_id


# -- cancel ------------------------------------------------------------------------------------------------------------


def test_what_nobody_runs_is_cancelled_whoever_owns_it_and_what_is_held_is_asked_to_stop(url: str) -> None:
    async def fill(store: Store) -> list[str]:
        return [await held(store), await asking(store), await ready(store, owner=BOB)]

    running, waiting, bobs = opened(url, fill)
    done = json.loads(printed("tasks", "cancel", running, ids.abbreviated(waiting), bobs, "--store", url, "--json"))
    assert done == {
        "tasks": [
            {"task": running, "outcome": "asked", "status": "working"},
            {"task": waiting, "outcome": "cancelled", "status": "cancelled"},
            {"task": bobs, "outcome": "cancelled", "status": "cancelled"},
        ]
    }
    assert inspected(url, running).task.cancel_requested
    assert got(url, bobs, BOB).status is Status.CANCELLED
    assert printed("tasks", "cancel", running, bobs, "--store", url).splitlines() == [
        f"{running}  asked to stop; its code decides",
        f"{bobs}  over before: cancelled",
    ]


def test_what_can_not_be_cancelled_keeps_nobody_from_cancelling_the_others(url: str) -> None:
    async def fill(store: Store) -> list[str]:
        return [await over(store), await ready(store)]

    finished, waiting = opened(url, fill)
    unknown = "tsk_" + "a" * 32
    done = refused("tasks", "cancel", finished, unknown, "nonsense", "tsk_", waiting, "--store", url)
    assert done.splitlines() == [
        f"{finished}  over before: completed",
        f"{unknown}  refused: There is no task {unknown}: perdure tasks ls shows which there are",
        "nonsense  refused: nonsense is no task id: perdure tasks ls shows which there are",
        "tsk_  refused: Several ids begin with tsk_: say more of it",
        f"{waiting}  cancelled",
    ]


def test_all_that_have_something_in_common_are_cancelled_once_somebody_has_agreed(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "PART", 1)

    async def fill(store: Store) -> list[str]:
        return [await over(store), await ready(store, owner=BOB), await ready(store), await asking(store)]

    finished, bobs, waiting, asks = opened(url, fill)
    for answer, code, said in (
        ("", 2, "Nobody is here to agree, so nothing was done. Say --yes.\n"),
        ("n\n", 1, "perdure: nothing was done\n"),
    ):
        done = command(url, "cancel", "--principal", "ada", answer=answer)
        assert (done.exit_code, done.stdout) == (code, "")
        assert done.stderr.startswith("Ask 2 tasks to stop? [y/N]: ")
        assert done.stderr.endswith(said)
    assert got(url, waiting).status is Status.WORKING
    done = command(url, "cancel", "--principal", "ada", "--json", answer="y\n")
    assert done.exit_code == 0
    assert [each["task"] for each in json.loads(done.stdout)["tasks"]] == [asks, waiting]
    assert printed("tasks", "cancel", "--status", "unfinished", "--yes", "--store", url) == f"{bobs}  cancelled\n"
    assert got(url, finished).status is Status.COMPLETED
    assert printed("tasks", "cancel", "--status", "working", "--yes", "--store", url) == "no task\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Say which: all of them are --status unfinished."),
        (("tsk_a", "--tool", "report"), "Say TASK_IDs, or what tasks have in common; not both."),
        (("--status", "failed"), "--status: this is for input_required and working tasks only."),
        (("--status", "finished", "--yes"), "--status: this is for input_required and working tasks only."),
    ],
)
def test_nobody_cancels_by_saying_nothing_or_two_things(file: str, words: Sequence[str], said: str) -> None:
    assert said in refused("tasks", "cancel", *words, "--store", file, status=2)


def test_two_operators_at_once_cancel_each_task_once(url: str) -> None:
    async def fill(store: Store) -> list[str]:
        return [await ready(store) for _ in range(20)]

    task_ids = opened(url, fill)

    def cancel() -> list[Any]:
        return acting.cancel_all(url, Which(UNFINISHED))

    with ThreadPoolExecutor(2) as threads:
        one, other = [done.result(PATIENCE) for done in [threads.submit(cancel) for _ in range(2)]]
    assert {each["task"] for each in one + other} == set(task_ids)
    assert {each["outcome"] for each in one + other} == {"cancelled"}
    for task_id in task_ids:
        assert len(inspected(url, task_id).events) == 1


# -- retry -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waits", [backing_off, asleep], ids=["attempt", "sleep"])
def test_a_run_that_waits_for_a_time_is_due_now(url: str, waits: Any) -> None:
    task_id = opened(url, waits)
    done = json.loads(printed("tasks", "retry", ids.abbreviated(task_id), "--store", url, "--json"))
    assert done == {"task": task_id, "outcome": "due", "new": None}
    assert command(url, "show", task_id).stdout.endswith("made due by an operator\n")
    found = inspected(url, task_id)
    assert found.run is not None
    assert found.run.due_at is not None
    assert found.run.due_at < 0
    assert "it is due already, and waits for a worker" in refused("tasks", "retry", task_id, "--store", url)


def test_in_words_it_is_said_that_it_is_due(url: str) -> None:
    task_id = opened(url, asleep)
    assert printed("tasks", "retry", task_id, "--store", url) == f"{task_id}  due now\n"


@pytest.mark.parametrize(
    ("fill", "why"),
    [
        (held, "a worker has it; cancel it, or wait until it comes back"),
        (ready, "it is due already, and waits for a worker"),
        (asking, "it waits for an answer or for work elsewhere"),
    ],
    ids=["held", "ready", "asking"],
)
def test_what_waits_for_no_time_is_left_as_it_is(url: str, fill: Any, why: str) -> None:
    task_id = opened(url, fill)
    before = inspected(url, task_id)
    said = f"perdure: {ids.abbreviated(task_id)} is left as it is: {why}"
    assert refused("tasks", "retry", task_id, "--store", url) == said
    assert inspected(url, task_id) == before


def test_what_is_over_is_ordered_anew_for_the_same_owner_and_stays_over(url: str) -> None:
    async def fill(store: Store) -> str:
        return await over(store, owner=BOB, params={"password": SECRET}, ttl_ms=HOUR, keep_ms=5, key="k", digest="d")

    task_id = opened(url, fill)
    before = inspected(url, task_id)
    new_id = json.loads(printed("tasks", "retry", task_id, "--anew", "--store", url, "--json"))["new"]
    assert inspected(url, task_id) == before
    new = inspected(url, new_id)
    assert new.operation == before.operation
    assert (new.task.status, new.task.owner, new.task.ttl_ms, new.task.keep_ms, new.task.poll_ms) == (
        Status.WORKING,
        BOB,
        HOUR,
        5,
        500,
    )
    assert (new.journal.entries, new.events) == ({}, ())
    assert new.run is not None
    line = printed("tasks", "retry", task_id, "--anew", "--store", url)
    assert line == f"{task_id}  over; ordered anew before as {new_id}\n"


def test_two_operators_at_once_order_what_is_over_anew_once(url: str) -> None:
    task_id = opened(url, over)

    def order(_: int) -> Any:
        return acting.order_anew(url, task_id, max_attempts=10, timeout_ms=None)

    with ThreadPoolExecutor(4) as threads:
        done = list(threads.map(order, range(4), timeout=PATIENCE))
    assert sorted(each["outcome"] for each in done) == ["before", "before", "before", "new"]
    assert len({each["new"] for each in done}) == 1
    assert len(opened(url, everything)) == 2


def test_who_means_to_hurry_a_task_orders_none(url: str) -> None:
    """It may have come to its end just now."""
    task_id = opened(url, over)
    said = refused("tasks", "retry", task_id, "--store", url)
    assert said.endswith("is left as it is: it is over; --anew orders another one")
    assert opened(url, everything) == [task_id]
    said = refused("tasks", "retry", task_id, "--timeout", "90s", "--store", url, status=2)
    assert "--max-attempts and --timeout are for a new task: say --anew." in said


def test_what_is_not_over_is_not_ordered_anew(url: str) -> None:
    task_id = opened(url, backing_off)
    said = refused("tasks", "retry", task_id, "--anew", "--store", url)
    assert said == f"perdure: {ids.abbreviated(task_id)} is not over: it is working"
    assert opened(url, everything) == [task_id]


@pytest.mark.parametrize("column", ["ttl_ms", "keep_ms"])
def test_a_task_with_a_damaged_span_is_not_ordered_anew(
    file: str, tmp_path: Path, column: str, caplog: pytest.LogCaptureFixture
) -> None:
    task_id = opened(file, over)
    with closing(sqlite3.connect(tmp_path / "tasks.db")) as connection, connection:
        connection.execute(f"UPDATE task SET {column} = ?", [2**63 - 1])
    said = refused("tasks", "retry", task_id, "--anew", "--store", file)
    assert said == "perdure: A stored value was damaged, and has to be restored from a backup: ValueError"
    assert f"row of task {ids.abbreviated(task_id)}" in caplog.text
    assert opened(file, everything) == [task_id]


def test_what_bounds_the_new_run_is_said_by_the_operator(url: str) -> None:
    async def times_out(store: Store) -> tuple[int, int]:
        claim = await claimed(store, session := (await store.open_session(HOUR, {})).id)
        assert await store.take_over([session]) == 1
        return (claim.deadline_at or 0) - claim.at, len((await store.inspect(claim.task.id)).events)

    task_id = opened(url, over)
    words = ("--anew", "--timeout", "90s", "--max-attempts", "1")
    new_id = json.loads(printed("tasks", "retry", task_id, "--store", url, "--json", *words))["new"]
    assert opened(url, times_out) == (90_000, 1)
    assert inspected(url, new_id).task.status is Status.FAILED
    assert "no duration" in refused("tasks", "retry", task_id, "--store", url, "--timeout", "soon", status=2)


def test_of_a_sealed_store_a_run_is_hastened_without_keys_and_nothing_is_ordered_anew(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = KeyRing(OLD)
    waiting, finished = opened(url, backing_off, ring), opened(url, over, ring)
    assert printed("tasks", "retry", waiting, "--store", url) == f"{waiting}  due now\n"
    assert "sealed under the key 'old'" in refused("tasks", "retry", finished, "--anew", "--store", url)
    assert len(opened(url, everything, ring)) == 2
    monkeypatch.setenv("PERDURE_KEYS", OLD)
    new_id = json.loads(printed("tasks", "retry", finished, "--anew", "--store", url, "--json"))["new"]
    assert inspected(url, new_id, ring).operation.params == {"size": "large"}
    assert inspected(url, waiting, ring).events[0].detail == SECRET


def test_what_is_not_there_can_not_be_retried(url: str) -> None:
    opened(url, ready)
    unknown = "tsk_" + "a" * 32
    for words in ((), ("--anew",)):
        said = refused("tasks", "retry", unknown, *words, "--store", url)
        assert said.startswith(f"perdure: There is no task {unknown}: ")
        assert refused("tasks", "retry", "nonsense", *words, "--store", url).startswith("perdure: nonsense is no task")


# -- purge -------------------------------------------------------------------------------------------------------------


def test_nobody_is_asked_about_nothing(url: str) -> None:
    """A script need not say --yes for that, and what comes to fit meanwhile was not agreed to."""
    opened(url, over)
    for verb, said in (("cancel", "no task\n"), ("purge", "purged: 0\n")):
        done = command(url, verb, "--tool", "nobodys", answer="")
        assert (done.exit_code, done.stdout, done.stderr) == (0, said, "")


async def everything(store: Store) -> list[str]:
    return [each.id for each in (await store.browse(Which(), None, 1_000)).tasks]


def test_what_is_over_is_purged_once_somebody_has_agreed_and_leaves_tombstones(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "PART", 2)

    async def fill(store: Store) -> list[str]:
        finished = [await over(store) for _ in range(5)]
        return [*finished, await ready(store), await asking(store)]

    *finished, waiting, asks = opened(url, fill)
    assert printed("tasks", "purge", "--status", "finished", "--dry-run", "--store", url) == "would purge: 5\n"
    done = command(url, "purge", "--status", "completed", answer="n\n")
    assert done.exit_code == 1
    assert done.stderr.startswith("Delete 5 tasks for good? [y/N]: ")
    assert len(opened(url, everything)) == 7
    assert printed("tasks", "purge", "--unchanged", "1h", "--yes", "--store", url) == "purged: 0\n"
    done = command(url, "purge", "--status", "completed", "--json", answer="y\n")
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"purged": 5})
    assert opened(url, everything) == [asks, waiting]
    for task_id in finished:
        with pytest.raises(TaskExpired):
            got(url, task_id)


def test_a_tombstone_lives_as_long_as_is_said(url: str) -> None:
    task_id = opened(url, over)
    printed("tasks", "purge", "--tool", "report", "--tombstone", "1ms", "--yes", "--store", url)

    async def forgotten(store: Store) -> None:
        async def gone() -> bool:
            try:
                await store.get(ADA, task_id)
            except TaskNotFound:
                return True
            except TaskExpired:
                return False
            raise AssertionError

        await eventually(gone, "the tombstone is gone")

    opened(url, forgotten)


def test_a_dry_run_says_in_json_what_it_would_do(url: str) -> None:
    opened(url, over)
    found = json.loads(printed("tasks", "purge", "--tool", "report", "--dry-run", "--store", url, "--json"))
    assert found == {"purged": 0, "would_purge": 1}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Say which: all of them are --status finished."),
        (("--yes",), "Say which: all of them are --status finished."),
        (("--status", "working"), "--status: this is for cancelled and completed and failed tasks only."),
        (("--older", "ever"), "'ever' is no duration"),
    ],
)
def test_nobody_purges_by_saying_nothing(file: str, words: Sequence[str], said: str) -> None:
    assert said in refused("tasks", "purge", *words, "--store", file, status=2)


def test_one_task_is_asked_about_as_one(url: str) -> None:
    opened(url, over)
    assert command(url, "purge", "--tool", "report").stderr.startswith("Delete 1 task for good?")
