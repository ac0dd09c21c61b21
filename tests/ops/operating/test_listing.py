"""`perdure tasks ls`, `stats` and `export`: many tasks at once, and nothing of what they are about."""

import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import CliRunner

from perdure.domain import ids
from perdure.domain.journal import Waits
from perdure.domain.model import Asked, Completed
from perdure.domain.operating import Which
from perdure.ops import stores
from perdure.ops.cli import main
from perdure.ops.operating import access, looking
from perdure.store.base import Store
from perdure.store.keys import KeyRing
from tests.ops.operating.support import (
    HOUR,
    QUESTION,
    REPORT,
    SECRET,
    claimed,
    in_the_middle,
    minted,
    opened,
    over,
    printed,
    refused,
)
from tests.store.sealed import OLD, Place
from tests.store.support import ADA, BOB, ELSEWHERE
from tests.support import PATIENCE

DONE = Completed({"content": [{"type": "text", "text": SECRET}]})


async def some(store: Store) -> str:
    """Of Ada one that is over, one that is held and was asked to stop, and one that asks; of others one each."""
    session = await store.open_session(HOUR, {})
    await store.create(minted(params={"password": SECRET}))
    await store.finish(await claimed(store, session.id), DONE)
    await store.create(minted(ttl_ms=HOUR))
    held = await claimed(store, session.id)
    await store.request_cancel(ADA, held.task.id)
    await store.create(minted())
    await store.park(await claimed(store, session.id), Waits(asked={"name": Asked(QUESTION)}))
    await store.create(minted(owner=BOB))
    await store.create(minted("other", owner=ELSEWHERE))
    return ""


def listed(url: str, *options: str) -> Any:
    return json.loads(printed("tasks", "ls", "--store", url, "--json", *options))


def exported(url: str, *options: str) -> list[Any]:
    return [json.loads(line) for line in printed("tasks", "export", "--store", url, *options).splitlines()]


def brief(found: Any) -> list[tuple[str, str, str | None]]:
    tasks = found["tasks"]
    return [(each["owner"]["principal"], each["status"], each["run"] and each["run"]["state"]) for each in tasks]


def nothing(url: str) -> None:
    async def touch(_: Store) -> str:
        return ""

    opened(url, touch)


# -- ls ----------------------------------------------------------------------------------------------------------------


def test_tasks_are_listed_the_newest_first_with_how_their_runs_stand(url: str) -> None:
    opened(url, some)
    found = listed(url)
    assert brief(found) == [
        ("ada", "working", "ready"),
        ("bob", "working", "ready"),
        ("ada", "input_required", "waiting"),
        ("ada", "working", "held"),
        ("ada", "completed", None),
    ]
    assert found["more"] is False
    held = found["tasks"][3]
    assert (held["tool"], held["owner"]["tenant"], held["cancel_requested"]) == (REPORT, "acme", True)
    assert held["expires_at"] == held["created_at"] + HOUR
    assert held["run"]["attempt"] == 1


def test_a_list_in_words_shows_as_much_of_an_id_as_logs_do(url: str) -> None:
    opened(url, some)
    head, *lines = printed("tasks", "ls", "--store", url).splitlines()
    assert head.split() == ["task", "tool", "status", "run", "attempt", "age", "unchanged", "owner"]
    shown = [line.split()[0] for line in lines]
    assert shown == [ids.abbreviated(each["task"]) for each in listed(url)["tasks"]]
    assert [line.split("  ")[-1] for line in lines] == [
        "other / ada",
        "acme / bob",
        "acme / ada",
        "acme / ada",
        "acme / ada",
    ]
    assert "held, to stop" in lines[3]
    for text in shown:
        printed("tasks", "show", text, "--store", url)


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ((), 5),
        (("--status", "unfinished"), 4),
        (("--status", "finished"), 1),
        (("--status", "completed", "--status", "input_required"), 2),
        (("--status", "failed"), 0),
        (("--tool", "report"), 4),
        (("--tool", REPORT), 4),
        (("--tool", f"{REPORT}@2"), 0),
        (("--tenant", "acme", "--principal", "ada"), 3),
        (("--tenant", "", "--principal", "ada"), 0),
        (("--older", "1h"), 0),
        (("--newer", "1h"), 5),
        (("--unchanged", "2 h"), 0),
        (("--status", "unfinished", "--newer", "1d", "--tool", "other"), 1),
    ],
)
def test_only_those_that_are_meant_are_listed_and_exported(url: str, options: tuple[str, ...], count: int) -> None:
    opened(url, some)
    assert len(listed(url, *options)["tasks"]) == count
    assert len(exported(url, *options)) == count


def test_a_list_says_when_there_is_more(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(url, some)
    assert listed(url, "--limit", "5")["more"] is False
    for part in (1, 2, 1_000):
        monkeypatch.setattr(access, "PART", part)
        found = listed(url, "--limit", "2", "--tenant", "acme")
        assert (brief(found), found["more"]) == (
            [("bob", "working", "ready"), ("ada", "input_required", "waiting")],
            True,
        )
        assert len(listed(url, "--tenant", "acme")["tasks"]) == 4
    line = printed("tasks", "ls", "--limit", "2", "--store", url).splitlines()[-1]
    assert line == "these are the newest 2; there are more: say --limit N, or which"


def test_an_empty_store_lists_nothing(url: str) -> None:
    nothing(url)
    assert listed(url) == {"tasks": [], "more": False}
    assert printed("tasks", "ls", "--store", url) == "no task\n"
    assert exported(url) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--older", "soon"), "'soon' is no duration"),
        (("--newer", "0s"), "must be positive"),
        (("--status", "done"), "is not one of"),
        (("--limit", "0"), "--limit"),
    ],
)
def test_what_is_not_understood_is_said_so(url: str, options: tuple[str, ...], said: str) -> None:
    assert said in refused("tasks", "ls", "--store", url, *options, status=2)


def test_the_store_may_be_said_in_the_environment_and_must_be_said(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Missing option '--store'" in refused("tasks", "ls", status=2)
    nothing(file)
    monkeypatch.setenv("PERDURE_STORE", file)
    assert printed("tasks", "ls") == "no task\n"


# -- stats -------------------------------------------------------------------------------------------------------------


def test_tasks_are_counted_by_tool_and_status_with_what_waits(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(url, some)
    for part in (1, 2, 5_000):
        monkeypatch.setattr(looking, "COUNTED", part)
        found = json.loads(printed("tasks", "stats", "--store", url, "--json"))
        assert found["store"] == stores.described(url)
        other, report = found["tools"]
        counts = ("working", "input_required", "completed", "failed", "cancelled", "ready", "held", "waiting")
        assert (other["tool"], *(other[name] for name in counts)) == ("tools/call:other", 1, 0, 0, 0, 0, 1, 0, 0)
        assert (report["tool"], *(report[name] for name in counts)) == (REPORT, 2, 1, 1, 0, 0, 1, 1, 1)
        oldest = listed(url, "--status", "unfinished", "--tool", "report")["tasks"][-1]
        assert report["oldest_unfinished_at"] == oldest["created_at"]
    lines = printed("tasks", "stats", "--store", url).splitlines()
    assert lines[2].split() == [
        "tool", "working", "input_required", "completed", "failed", "cancelled", "oldest", "unfinished",
    ]  # fmt: skip
    assert lines[4].split()[:6] == [REPORT, "2", "1", "1", "0", "0"]


def test_of_a_tool_whose_tasks_are_all_over_nothing_waits(url: str) -> None:
    opened(url, over)
    (row,) = json.loads(printed("tasks", "stats", "--store", url, "--json"))["tools"]
    assert (row["completed"], row["oldest_unfinished_at"], row["oldest_ready_ms"]) == (1, None, None)
    assert printed("tasks", "stats", "--store", url).splitlines()[-2:] == ["", "no open task"]


def test_an_empty_store_has_no_statistics(url: str) -> None:
    nothing(url)
    assert printed("tasks", "stats", "--store", url).splitlines() == [f"store {stores.described(url)}", "", "no task"]


# -- export ------------------------------------------------------------------------------------------------------------


def test_an_export_is_what_show_prints_of_each_task_one_a_line(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "PART", 2)
    opened(url, some)
    for each in exported(url):
        assert each == json.loads(printed("tasks", "show", each["task"], "--store", url, "--json"))


def test_an_export_has_contents_if_they_are_asked_for(url: str) -> None:
    task_id = opened(url, in_the_middle)
    done = CliRunner().invoke(main, ["tasks", "export", "--store", url, "--contents"])
    (line,) = done.output.splitlines()
    shown = CliRunner().invoke(main, ["tasks", "show", task_id, "--store", url, "--contents", "--json"])
    assert json.loads(line) == json.loads(shown.output)


# -- damage and seals --------------------------------------------------------------------------------------------------


def damaged(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(statement)


def test_a_task_whose_row_was_damaged_is_left_out_of_every_list(
    file: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened(file, some)
    damaged(tmp_path / "tasks.db", "UPDATE task SET status = 'elsewhere' WHERE seq = 2")
    assert len(listed(file)["tasks"]) == len(exported(file)) == 4
    (_, report) = json.loads(printed("tasks", "stats", "--store", file, "--json"))["tools"]
    assert (report["working"], report["held"]) == (1, 1)
    assert "was damaged" in caplog.text


def test_a_task_that_holds_what_was_damaged_is_exported_as_far_as_it_can_be_read(file: str, tmp_path: Path) -> None:
    opened(file, some)
    damaged(tmp_path / "tasks.db", "UPDATE task SET accepts = CAST(x'ff' AS TEXT) WHERE seq = 2")
    done = CliRunner().invoke(main, ["tasks", "export", "--store", file])
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1] == "perdure: tasks that can't be read: 1"
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [("was damaged" in each.get("unreadable", ""), each["status"]) for each in lines] == [
        (False, "working"),
        (False, "working"),
        (False, "input_required"),
        (True, "working"),
        (False, "completed"),
    ]


def test_without_keys_a_sealed_store_is_listed_counted_and_exported_without_contents(url: str) -> None:
    opened(url, in_the_middle, KeyRing(OLD))
    assert len(listed(url)["tasks"]) == 1
    (task,) = exported(url)
    assert [event["detail"] for event in task["timeline"]] == ["(sealed)"]
    printed("tasks", "stats", "--store", url)
    for command in (("export",), ("show", task["task"])):
        assert "sealed under the key 'old'" in refused("tasks", *command, "--contents", "--store", url)


def test_one_value_that_can_not_be_opened_is_said_so_and_the_other_tasks_are_exported(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    strange, sound = [opened(url, in_the_middle, KeyRing(OLD)) for _ in range(2)]
    theirs = f"(SELECT params FROM perdure.task WHERE id = '{sound}')"
    anyio.run(Place(url).rows, f"UPDATE perdure.task SET params = {theirs} WHERE id = '{strange}'")
    monkeypatch.setenv("PERDURE_KEYS", OLD)
    done = CliRunner().invoke(main, ["tasks", "export", "--store", url, "--contents"])
    assert done.exit_code == 1
    good, bad = [json.loads(line) for line in done.stdout.splitlines()]
    assert (good["task"], good["contents"]["message"]) == (sound, SECRET)
    assert (bad["task"], "contents" in bad, "does not open" in bad["unreadable"]) == (strange, False, True)


def test_a_task_that_is_purged_while_others_are_exported_is_left_out(url: str) -> None:
    opened(url, some)
    lines: list[Any] = []

    async def discard(store: Store) -> str:
        finished = [each.id for each in (await store.browse(Which(), None, 10)).tasks if each.run is None]
        assert await store.discard(finished, tombstone_ms=1) == 1
        return ""

    def say(line: Any) -> None:
        if not lines:
            with ThreadPoolExecutor() as thread:
                thread.submit(opened, url, discard).result(PATIENCE)
        lines.append(line)

    assert looking.export(url, Which(), say, with_contents=False) == 0
    assert len(lines) == 4
