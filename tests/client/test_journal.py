"""The journal by itself: what it remembers, whose question is whose, and who may read it."""

import os
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path

import pytest

from perdure.client import Journal, JournalUnusable, KeyReused, Record, journal_sql
from perdure.client.holder import LockedFile
from perdure.client.journal import Answered, Unanswered
from tests.copies import Copy, talking

SERVER = "http://127.0.0.1:8000/mcp"


def begun(journal: Journal, key: str = "one") -> Record:
    record, is_new = journal.intend(SERVER, "greet", key, {"secret": "sesame"})
    assert is_new
    return record


@pytest.fixture(params=["memory", "file"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Journal:
    return Journal(None if request.param == "memory" else tmp_path / "journal.db")


def test_a_call_is_known_by_its_key_and_then_by_its_task_too(journal: Journal) -> None:
    record = begun(journal)
    assert (record.task_id, record.arguments) == (None, {"secret": "sesame"})
    assert journal.intend(SERVER, "greet", "one", {"secret": "sesame"}) == (record, False)
    handle = journal.put_handle(record, "tsk_1")
    assert (handle.task_id, handle.arguments) == ("tsk_1", None)
    assert journal.find(SERVER, "one") == journal.find(SERVER, "tsk_1") == handle
    assert journal.find("http://elsewhere/mcp", "one") is None
    journal.close()


def test_a_key_is_that_of_one_tool_with_the_same_arguments(journal: Journal) -> None:
    handle = journal.put_handle(begun(journal), "tsk_1")
    for tool, arguments in (("greet", {"secret": "other"}), ("greet", None), ("leave", {"secret": "sesame"})):
        with pytest.raises(KeyReused, match="'one'") as reused:
            journal.intend(SERVER, tool, "one", arguments)
        assert reused.value.record == handle
    assert journal.intend(SERVER, "greet", "one", {"secret": "sesame"}) == (handle, False)
    nothing, _ = journal.intend(SERVER, "greet", "two", {})
    assert journal.intend(SERVER, "greet", "two", None) == (nothing, False)
    journal.close()


def test_two_calls_that_come_to_one_task_are_one_record(journal: Journal) -> None:
    first = journal.put_handle(begun(journal), "tsk_1")
    assert journal.put_handle(begun(journal, "two"), "tsk_1") == first
    assert journal.adopt(SERVER, "", "tsk_1") == first
    assert journal.records() == [first]
    journal.close()


def test_a_handle_that_comes_after_its_record_was_forgotten_is_put_down_all_the_same(journal: Journal) -> None:
    record = begun(journal)
    assert journal.forget(record)
    handle = journal.put_handle(record, "tsk_1")
    assert (handle.key, handle.task_id, handle.tool, handle.arguments) == ("one", "tsk_1", "greet", None)
    assert journal.records() == [handle]
    journal.close()


def test_also_if_its_key_is_another_call_s_by_now(journal: Journal) -> None:
    record = begun(journal)
    journal.forget(record)
    other = begun(journal)
    assert journal.put_handle(record, "tsk_1").task_id == "tsk_1"
    assert journal.find(SERVER, "one") == other
    journal.close()


def test_a_task_s_id_goes_before_a_key_that_reads_the_same(journal: Journal) -> None:
    other = begun(journal, "tsk_1")
    handle = journal.put_handle(begun(journal, "one"), "tsk_1")
    assert journal.find(SERVER, "tsk_1") == handle
    assert journal.intend(SERVER, "greet", "tsk_1", {"secret": "sesame"}) == (other, False)
    taken = begun(journal, "task:tsk_2")
    assert journal.adopt(SERVER, "", "tsk_2").task_id == "tsk_2"
    assert journal.find(SERVER, "task:tsk_2") == taken
    journal.close()


def test_a_task_without_a_call_is_remembered_as_well(journal: Journal) -> None:
    record = journal.adopt(SERVER, "", "tsk_1")
    assert journal.records(SERVER) == [record]
    assert journal.records("http://elsewhere/mcp") == []
    assert journal.forget(record)
    assert not journal.forget(record)
    assert journal.records() == []
    journal.close()


def test_a_question_is_claimed_answered_and_sent_once(journal: Journal) -> None:
    record = begun(journal)
    assert journal.claim(record, "form") == Unanswered(mine=True)
    assert journal.claim(record, "form") == Unanswered(mine=False)
    journal.release(record, "form")
    assert journal.claim(record, "form") == Unanswered(mine=True)
    assert journal.answer(record, "form", {"action": "accept"})
    assert not journal.answer(record, "form", {"action": "decline"})
    journal.release(record, "form")
    assert journal.claim(record, "form") == Answered({"action": "accept"})
    journal.sent(record, "form")
    assert journal.claim(record, "form") == Answered(None)
    assert not journal.answer(record, "form", {})
    assert journal.claim(record, "entry") == Unanswered(mine=True)
    journal.close()


def test_answers_are_never_taken_over_by_another_call(journal: Journal) -> None:
    record = begun(journal)
    journal.settle(record, "completed")
    assert journal.answer(record, "form", {"action": "accept"})
    assert journal.forget(record)
    assert journal.answer(record, "form", {"action": "accept"})
    assert journal.claim(begun(journal), "form") == Unanswered(mine=True)
    journal.close()


def test_what_was_said_to_a_call_and_did_not_go_along_is_kept_for_its_task_and_moved_to_its_question(
    journal: Journal,
) -> None:
    record = begun(journal)
    for place in ("round 0: a", "round 1: b", "round 2: b"):
        journal.answer(record, place, {"said in": place})
    handle = journal.put_handle(record, "tsk_1", {"round 0: a", "round 7: z"})
    journal.carry(handle, "round *: a", "gone")
    journal.carry(handle, "round *: b", "form")
    assert journal.unsent(handle, "gone") is None
    assert journal.unsent(handle, "form") == {"said in": "round 2: b"}
    assert journal.claim(handle, "other") == Unanswered(mine=True)
    journal.answer(handle, "other", {"said": "by hand"})
    journal.carry(handle, "round *: b", "other")
    assert journal.unsent(handle, "other") == {"said": "by hand"}
    journal.settle(handle, "completed")
    assert journal.unsent(handle, "round 1: b") is None
    journal.close()


PLANS = {
    "BY_TASK": "SEARCH call USING INDEX sqlite_autoindex_call_2 (server=? AND task_id=?)",
    "BY_KEY": "SEARCH call USING INDEX sqlite_autoindex_call_1 (server=? AND key=?)",
    "BY_NUMBER": "SEARCH call USING INTEGER PRIMARY KEY (rowid=?)",
    "OTHER": "SEARCH call USING COVERING INDEX sqlite_autoindex_call_2 (server=? AND task_id=?)",
    "SETTLE": "SEARCH call USING INTEGER PRIMARY KEY (rowid=?)",
    "FORGET_ANSWERS": "SEARCH question USING PRIMARY KEY (call=?)",
    "FORGET_DEAD": "SEARCH call USING INTEGER PRIMARY KEY (rowid=?)",
    "PRUNE": "SEARCH call USING INDEX call_settled (settled_at<?)",
    "FORGET_ANSWER": "SEARCH question USING PRIMARY KEY (call=? AND key=?)",
    "CARRY": "SEARCH question USING PRIMARY KEY (call=? AND key=?)",
    "LIKE": "SEARCH question USING PRIMARY KEY (call=? AND key>? AND key<?)",
    "QUESTION": "SEARCH question USING PRIMARY KEY (call=? AND key=?)",
}


@pytest.mark.parametrize("name", PLANS)
def test_statements_find_their_rows_by_an_index(name: str) -> None:
    statement = vars(journal_sql)[name]
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(journal_sql.TABLES)
        plan = db.execute(f"EXPLAIN QUERY PLAN {statement}", ["x"] * statement.count("?")).fetchall()
    assert [row[3] for row in plan] == [PLANS[name]]


def test_it_is_closed_with_the_last_reference(tmp_path: Path) -> None:
    Journal(tmp_path / "journal.db")
    assert [path.name for path in tmp_path.iterdir()] == ["journal.db"]


def test_an_answer_that_was_refused_is_none(journal: Journal) -> None:
    record = begun(journal)
    assert journal.answer(record, "form", {"action": "accept"})
    journal.refused(record, "form")
    assert journal.claim(record, "form") == Unanswered(mine=True)
    journal.close()


def test_what_is_over_is_forgotten_after_a_while_and_what_is_not_is_kept(tmp_path: Path) -> None:
    now, path = 1_000_000.0, tmp_path / "journal.db"
    journal = Journal(path, now=lambda: now)
    journal.settle(journal.put_handle(begun(journal), "tsk_1"), "completed")
    begun(journal, "two")
    journal.close()
    for days, keys in ((6.9, ["one", "two"]), (7.1, ["two"])):
        later = Journal(path, now=lambda days=days: now + days * 86_400)
        assert [record.key for record in later.records()] == keys
        later.close()


def test_only_its_user_may_read_it_and_what_was_handed_on_is_erased(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    record = journal.put_handle(begun(journal), "tsk_1")
    journal.answer(record, "form", {"action": "accept", "content": {"password": "hush"}})
    journal.sent(record, "form")
    journal.answer(record, "entry", {"action": "accept", "content": {"password": "quiet"}})
    journal.sent(record, "entry")
    assert journal.given(record, "form") == {"action": "accept", "content": {"password": "hush"}}
    journal.erase(record, "form")
    assert journal.given(record, "form") is None
    assert journal.claim(record, "form") == Answered(None)
    journal.settle(record, "completed")
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    journal.close()
    assert [path.name for path in tmp_path.iterdir()] == ["journal.db"]
    content = (tmp_path / "journal.db").read_bytes()
    assert b"sesame" not in content
    assert b"hush" not in content
    assert b"quiet" not in content


def test_a_file_that_others_may_read_is_kept_from_them(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.touch(0o644)
    path.chmod(0o644)
    journal = Journal(path)
    assert {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()} == {0o600}
    journal.close()


def test_a_child_that_was_forked_off_leaves_what_its_parent_holds(tmp_path: Path) -> None:
    forks = (
        "import os, sys; from perdure.client import Journal; journal = Journal(sys.argv[1])\n"
        "child = os.fork()\n"
        "if child == 0: sys.exit()\n"
        "os.waitpid(child, 0)\n"
        "print(len([name for name in os.listdir('.') if name.endswith('.user')]))"
    )
    command = [sys.executable, "-c", forks, "journal.db"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (run.stdout.strip(), run.stderr) == ("1", "")


def test_a_task_that_the_server_did_not_know_keeps_its_answers_for_a_long_while(tmp_path: Path) -> None:
    now, path = 1_000_000.0, tmp_path / "journal.db"
    journal = Journal(path, now=lambda: now)
    record = journal.put_handle(begun(journal), "tsk_1")
    journal.answer(record, "form", {"action": "accept"})
    journal.lose(record)
    journal.close()
    for days, statuses in ((89.0, ["lost"]), (91.0, [])):
        later = Journal(path, now=lambda days=days: now + days * 86_400)
        assert [each.status for each in later.records()] == statuses
        assert (later.unsent(record, "form") is not None) is bool(statuses)
        later.close()


def test_a_task_that_was_over_and_is_not_known_any_more_has_expired(journal: Journal) -> None:
    record = journal.put_handle(begun(journal), "tsk_1")
    journal.settle(record, "completed")
    journal.lose(record)
    assert [each.status for each in journal.records()] == ["expired"]
    journal.close()


def test_a_call_under_a_key_that_is_free_again_is_another_call_of_whoever_comes_first(journal: Journal) -> None:
    dead = journal.put_handle(begun(journal), "tsk_1")
    journal.settle(dead, "expired")
    renewed, is_mine = journal.renew(dead, {"secret": "sesame"})
    assert is_mine
    assert journal.is_busy(renewed)
    assert journal.renew(dead, {"secret": "sesame"}) == (renewed, False)
    assert journal.records() == [renewed]
    assert (renewed.key, renewed.task_id, renewed.status) == ("one", None, None)
    journal.close()


def test_what_is_said_of_a_task_that_is_no_more_is_not_said_of_the_call_after_it(journal: Journal) -> None:
    dead = journal.put_handle(begun(journal), "tsk_1")
    journal.lose(dead)
    assert journal.answer(dead, "form", {"action": "decline"})
    renewed, _ = journal.renew(dead, {"secret": "sesame"})
    assert journal.answer(renewed, "entry", {"action": "accept"})
    journal.answer(dead, "entry", {"action": "decline"})
    journal.sent(dead, "entry")
    journal.regain(dead)
    journal.lose(dead)
    journal.settle(dead, "expired")
    assert not journal.forget(dead)
    assert journal.records() == [renewed]
    assert journal.unsent(renewed, "form") is None
    assert journal.unsent(renewed, "entry") == {"action": "accept"}
    handle = journal.put_handle(renewed, "tsk_2")
    assert (handle.number, handle.status) == (renewed.number, None)
    journal.close()


def test_a_write_waits_for_a_neighbour_no_longer_than_two_seconds(tmp_path: Path) -> None:
    """The event loop waits with it."""
    path = tmp_path / "journal.db"
    journal = Journal(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as neighbour:
        neighbour.execute("BEGIN IMMEDIATE")
        begun_at = time.monotonic()
        with pytest.raises(JournalUnusable, match="locked"):
            begun(journal)
        assert time.monotonic() - begun_at < 5
    journal.close()


def test_what_is_something_else_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    other, text = tmp_path / "other.db", tmp_path / "text"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE mine (x)")
    db.close()
    text.write_text("a letter to somebody, which is longer than a header of SQLite's would be, and then some more")
    for path in (other, text, tmp_path / "no" / "folder"):
        before = path.read_bytes() if path.exists() else None
        with pytest.raises(JournalUnusable, match=str(path)):
            Journal(path)
        assert (path.read_bytes() if path.exists() else None) == before


# -- other processes ---------------------------------------------------------------------------------------------------

CLAIMS = """
import sys
from perdure.client import Journal
journal = Journal(sys.argv[1])
record = journal.find(sys.argv[2], "one")
print(journal.claim(record, "form"), flush=True)
sys.stdin.read()
"""


def claiming(path: Path) -> AbstractAsyncContextManager[Copy]:
    return talking([sys.executable, "-c", CLAIMS, path, SERVER])


async def test_what_a_process_claimed_is_free_once_it_is_killed_and_not_before(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = Journal(path)
    record = begun(journal)
    async with claiming(path) as child:
        assert child.stdout is not None
        assert await child.stdout.readline() == b"Unanswered(mine=True)\n"
        assert journal.claim(record, "form") == Unanswered(mine=False)
        journal.release(record, "form")
        assert journal.claim(record, "form") == Unanswered(mine=False)
    assert journal.claim(record, "form") == Unanswered(mine=True)
    assert len(list(tmp_path.glob("*.user"))) == 1  # noqa: ASYNC240 - a few names
    async with claiming(path) as child:
        assert child.stdout is not None
        assert await child.stdout.readline() == b"Unanswered(mine=False)\n"
    journal.close()
    async with claiming(path) as child:
        assert child.stdout is not None
        assert await child.stdout.readline() == b"Unanswered(mine=True)\n"


def test_who_made_a_call_is_busy_with_it_for_as_long_as_he_lives(tmp_path: Path) -> None:
    first, second = (Journal(tmp_path / "journal.db") for _ in range(2))
    record = begun(first)
    assert second.is_busy(record)
    assert first.is_busy(record)
    first.close()
    assert not second.is_busy(record)
    assert second.take(record)
    found = second.find(SERVER, "one")
    assert found is not None
    assert found.holder != record.holder
    second.close()


def test_a_call_that_nobody_makes_is_taken_by_one(tmp_path: Path) -> None:
    first, second, third = (Journal(tmp_path / "journal.db") for _ in range(3))
    record = begun(first)
    first.let_go(record)
    seen = second.reread(record)
    assert seen is not None
    assert not second.is_busy(seen)
    assert third.take(seen)
    assert not second.take(seen)
    assert not third.take(seen)
    assert second.is_busy(third.reread(record) or seen)
    third.put_handle(record, "tsk_1")
    assert not second.is_busy(second.reread(record) or seen)
    assert not second.take(seen)
    assert second.forget(record)
    assert second.reread(record) is None
    for journal in (first, second, third):
        journal.close()


SWEEPING = """
import pathlib, sys
from perdure.client import journal_sql
from perdure.client.holder import LockedFile
user = LockedFile(pathlib.Path(sys.argv[1]))
print(user.token, flush=True)
while True:
    user.sweep()
"""


def test_the_file_of_a_user_who_is_gone_goes_under_its_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever gets the lock after that sees that the file is gone."""
    observer, gone = LockedFile(tmp_path / "journal.db"), tmp_path / "journal.db-gone.user"
    gone.touch()
    seen: list[bool] = []

    def closing(file: int, close: Callable[[int], None] = os.close) -> None:
        seen.append(gone.exists())
        close(file)

    monkeypatch.setattr(os, "close", closing)
    assert not observer.is_alive("gone")
    monkeypatch.undo()
    assert seen == [False]
    observer.close()


def test_a_handle_that_the_disk_had_no_room_for_leaves_its_call_free_for_others(tmp_path: Path) -> None:
    first, second = (Journal(tmp_path / "journal.db") for _ in range(2))
    record = begun(first)
    db = vars(first)["_db"]
    db.execute("PRAGMA query_only = ON")
    with pytest.raises(JournalUnusable):
        first.put_handle(record, "tsk_1")
    db.execute("PRAGMA query_only = OFF")
    assert second.is_busy(record)
    first.let_go(record)
    assert not second.is_busy(second.reread(record) or record)
    for journal in (first, second):
        journal.close()


async def test_who_comes_while_another_sweeps_is_not_taken_for_gone(tmp_path: Path) -> None:
    """A file that is not locked yet looks like that of a user who died."""
    journal = tmp_path / "journal.db"
    with closing(LockedFile(journal)) as observer:
        async with talking([sys.executable, "-c", SWEEPING, journal]) as sweeper:
            assert sweeper.stdout is not None
            await sweeper.stdout.readline()
            for _ in range(2_000):
                user = LockedFile(journal)
                assert observer.is_alive(user.token)
                user.close()
