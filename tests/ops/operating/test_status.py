"""What operators see of a store's workers and queues."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from perdure.domain.journal import Entry, EntryState, Verb
from perdure.domain.model import Demand, Owner
from perdure.ops import stores
from perdure.store.base import Store
from perdure.store.sqlite import schema
from tests.ops.operating.support import (
    HOUR,
    REPORT,
    busy,
    minted,
    opened,
    printed,
    refused,
)

COMMANDS = [
    ("tasks", "ls"),
    ("tasks", "show", "tsk_" + "a" * 32),
    ("tasks", "stats"),
    ("tasks", "export"),
    ("tasks", "cancel", "tsk_" + "a" * 32),
    ("tasks", "retry", "tsk_" + "a" * 32),
    ("tasks", "purge", "--status", "finished", "--yes"),
]
"""One of each."""


def test_a_status_shows_who_works_and_what_waits_and_what_nobody_can_run(url: str) -> None:
    lapsed = opened(url, busy)
    found = json.loads(printed("status", "--store", url, "--json"))
    assert found["store"] == stores.described(url)
    states = {(each["host"] == "elsewhere", each["state"]) for each in found["workers"]}
    assert states == {(False, "alive"), (False, "gone"), (True, "lapsed")}
    assert {each["tool"]: (each["ready"], each["held"], each["waiting"]) for each in found["tools"]} == {
        "tools/call:other": (2, 0, 0),
        REPORT: (1, 0, 1),
    }
    assert found["unclaimable"] == ["tools/call:other"], "those who have it are gone or have lapsed"
    lines = printed("status", "--store", url).splitlines()
    assert lines[0] == f"store {stores.described(url)}"
    assert lines[-1] == "unclaimable: no worker has tools/call:other"
    assert any(line.startswith(lapsed) and "elsewhere:7" in line and " lapsed " in line for line in lines)


def test_the_routes_of_gateways_are_counted_if_there_are_any(url: str) -> None:
    async def lay(_: Store) -> None:
        routes = stores.open_routes(url)
        await routes.open()
        for number in range(2):
            await routes.lay(Owner("", "ada"), "files", f"theirs-{number}", None, minted().id)
        await routes.close()

    opened(url, busy)
    assert json.loads(printed("status", "--store", url, "--json"))["routes"] == 0
    assert "routes of gateways" not in printed("status", "--store", url)
    opened(url, lay)
    assert json.loads(printed("status", "--store", url, "--json"))["routes"] == 2
    assert "routes of gateways: 2" in printed("status", "--store", url).splitlines()


def test_an_empty_store_has_nothing_to_show(url: str) -> None:
    async def nothing(_: Store) -> str:
        return ""

    opened(url, nothing)
    assert printed("status", "--store", url).splitlines() == [
        f"store {stores.described(url)}",
        "",
        "no worker",
        "",
        "no open task",
    ]


def test_a_store_that_is_not_there_is_not_made(file: str, tmp_path: Path) -> None:
    for command in (("status",), *COMMANDS):
        assert refused(*command, "--store", file) == f"perdure: there is no file {tmp_path / 'tasks.db'}"
    assert not list(tmp_path.iterdir())


def test_a_status_needs_a_store() -> None:
    assert "Say which store: MODULE:APP, or --store URL, or PERDURE_STORE in the environment." in refused(
        "status", status=2
    )


async def hostile(store: Store) -> str:
    """Everybody chose a name that clears the screen of who reads it."""
    name = "x\x1b[2J\x9b\r\n\u202e"
    task = await store.create(minted(name, owner=Owner(name, name)))
    session = await store.open_session(HOUR, {"host": name, "pid": 1, "handlers": [name]})
    (claim,) = await store.claim(session.id, [Demand(f"tools/call:{name}", 1)], 1)
    await store.record(claim, Entry("0", Verb.STEP, name, EntryState.DONE), note=name)
    await store.retry(claim, HOUR, name)
    await store.create(minted(name))
    return task.id


def test_names_can_not_reach_the_terminal(url: str) -> None:
    task_id = opened(url, hostile)
    commands = [("status",), ("tasks", "ls"), ("tasks", "show", task_id), ("tasks", "stats"), ("tasks", "export")]
    for command in commands:
        output = printed(*command, "--store", url)
        assert all(line.isprintable() for line in output.splitlines()), command
    assert refused("tasks", "cancel", "\x1b[2J", "--store", url) == (
        "[2J  refused:  [2J is no task id: perdure tasks ls shows which there are"
    )


def migrated_to(path: Path, version: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(schema.script(schema.MIGRATIONS[:version]).replace(".bail on", ""))


def test_no_look_brings_a_file_of_an_older_release_up_to_date(file: str, tmp_path: Path) -> None:
    """The processes of that release would be shut out by it."""
    path = tmp_path / "tasks.db"
    before = len(schema.MIGRATIONS) - 1
    migrated_to(path, before)
    for command in (("status",), *COMMANDS):
        assert refused(*command, "--store", file) == (
            f"perdure: {path} has the schema of an older release: stop what still runs that one, then "
            f"perdure migrate {file}"
        )
    assert len(schema.lacking(path)) == 1


def test_a_database_that_was_not_migrated_is_refused(empty_database: str) -> None:
    for command in (("status",), *COMMANDS):
        assert "perdure migrate" in refused(*command, "--store", empty_database)


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
