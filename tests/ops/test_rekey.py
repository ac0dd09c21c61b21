"""`perdure rekey`: what it says and does, on a file and on a server, also when it is killed in the middle of it."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner, Result

from perdure.domain.errors import StoreUnavailable
from perdure.domain.model import JSON, Session
from perdure.ops import rekey, stores
from perdure.ops.cli import main
from perdure.ops.rekey import Found
from perdure.store.keys import KeyRing
from perdure.store.reseal import Mark, Page
from tests.copies import talking
from tests.store.sealed import NEW, OLD, Place, key
from tests.store.support import DONE, new_task, running, step

MANY = 500
LOST = key("lost")
STUCK = """
import time
from perdure.ops.cli import main
from perdure.store.{backend} import resealing

renewed, calls = resealing.renewed, 0

def until_then(*given):
    global calls
    calls += 1
    if calls == 250:
        print("here", flush=True)
        time.sleep(3600)
    return renewed(*given)

resealing.renewed = until_then
main()
"""
GROW = """
INSERT INTO perdure.task (id, tenant, principal, method, name, params, handler_version, status, version, created_at,
                          updated_at, accepts)
SELECT 'tsk_' || n, 't', 'p', 'tools/call', 'report', '{"said": "xyzzy"}', '', 'completed', 1, n, n, '' FROM numbers"""
NUMBERS = {
    "sqlite": f"WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {MANY})",
    "postgresql": f"WITH numbers AS (SELECT * FROM generate_series(1, {MANY}) AS n)",
}


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        place = Place(f"sqlite:///{tmp_path / 'tasks.db'}")
        anyio.run(fill, place)
        return place
    return Place(request.getfixturevalue("emptied_database"))


async def fill(place: Place, *keys: str, tasks: int = 0) -> None:
    """So many tasks, all but the last one over."""
    store = place.store(None, *keys)
    await store.open()
    for number in range(tasks):
        claim = await running(store, new_task(params={"said": "xyzzy"}))
        await store.record(claim, step("0", "plugh"))
        if number < tasks - 1:
            await store.finish(claim, DONE)
    await store.close()
    await place.rows("DELETE FROM perdure.session")  # whoever it was is at work no more


def run(place: Place | str, *keys: str, arguments: tuple[str, ...] = ()) -> Result:
    url = place if isinstance(place, str) else place.url
    return CliRunner().invoke(main, ["rekey", url, *arguments], env={"PERDURE_KEYS": ",".join(keys) or None})


def closing(how: str) -> list[str]:
    """The lines at the end of it, but for what PostgreSQL may have left."""
    return [
        f"all values that there are now are stored {how}, and so does every worker on record",
        "before another key is destroyed, start every process with these keys (servers without a worker are not on "
        "record), take that key away, and see what `perdure rekey --verify` says",
    ]


def lines_of(done: Result) -> list[str]:
    return [line for line in done.output.splitlines() if not line.startswith("note: values as they were stored before")]


async def at_work(place: Place, *said: JSON) -> None:
    """Processes that say so of how they store."""
    store = place.store(None, NEW, OLD)
    await store.open()
    for number, sealing in enumerate(said):
        await store.open_session(600_000, {"host": "db1", "pid": number, "sealing": sealing})
    await store.close()


def test_a_store_is_sealed_under_the_new_key_and_the_old_one_is_needed_no_more(place: Place) -> None:
    anyio.run(lambda: fill(place, OLD, tasks=3))
    shown = stores.described(place.url)
    for changed in (8, 0):
        done = run(place, NEW, OLD)
        first, *passes = lines_of(done)[:-2]
        assert (done.exit_code, first) == (0, f"{shown}: all values are to be stored under the key 'new'")
        assert passes == [f"pass 1: values stored anew: {changed}", *["pass 2: values stored anew: 0"] * bool(changed)]
        assert lines_of(done)[-2:] == closing("under the key 'new'")
        noted = "note: values as they were stored before may be left in the files of the tables" in done.output
        assert noted is (place.file is None)
    anyio.run(lambda: fill(place, NEW))
    done = run(place, NEW, arguments=("--verify",))
    assert done.exit_code == 0
    assert done.output.splitlines()[1:] == ["all values that there are now open with these keys"]


def test_encryption_may_be_given_up(place: Place) -> None:
    anyio.run(lambda: fill(place, OLD, tasks=1))
    done = run(place, "clear", OLD)
    assert done.output.splitlines()[1:] == [
        "pass 1: values stored anew: 2",
        "pass 2: values stored anew: 0",
        *closing("in the clear"),
    ]
    anyio.run(lambda: fill(place))


def test_what_can_not_be_opened_is_named_and_ends_it_with_status_1(place: Place) -> None:
    anyio.run(lambda: fill(place, OLD, tasks=2))
    anyio.run(place.rows, "UPDATE perdure.entry SET value = '~1.lost.AAAA' WHERE task_seq = 1")
    done = run(place, NEW, OLD)
    assert done.exit_code == 1
    *_, named, last = done.output.splitlines()
    said = "entry 0 of task tsk_.*, sealed under the key 'lost', can't be opened, since this process has no such key"
    assert re.fullmatch(said, named)
    assert last == "perdure: values that can't be opened and were left as they are: 1"


@pytest.mark.parametrize("ring", [(NEW, OLD), ("clear", OLD), (NEW, OLD, "lost:lost"), ("clear", OLD, "lost:lost")])
def test_a_key_that_is_lacking_is_in_nobody_s_way_wherever_its_tasks_lie(place: Place, ring: tuple[str, ...]) -> None:
    async def fill_in_turn() -> None:
        for keys in ((LOST, OLD), (OLD, LOST), (LOST, OLD)):
            await fill(place, *keys, tasks=4)

    anyio.run(fill_in_turn)
    done = run(place, *ring)
    assert done.exit_code == 1
    assert done.output.count(", sealed under the key 'lost', can't be opened") == 20
    assert done.output.splitlines()[-1] == "perdure: values that can't be opened and were left as they are: 22"
    verified = run(place, ring[0], "lost:lost", arguments=("--verify",))
    assert verified.output.splitlines()[-1] == "perdure: values that can't be opened: 22"
    assert "'old'" not in verified.output


def test_of_many_values_that_can_not_be_opened_some_are_named_and_all_are_counted(place: Place) -> None:
    anyio.run(lambda: fill(place, OLD, tasks=30))
    for arguments in ((), ("--verify",)):
        done = run(place, NEW, arguments=arguments)
        assert done.exit_code == 1
        assert done.output.count(", sealed under the key 'old', can't be opened") == 20
        assert "values that can't be opened" in done.output.splitlines()[-1]
        assert done.output.splitlines()[-1].endswith(": 89")


def test_a_key_is_made_and_is_another_each_time() -> None:
    made = [CliRunner().invoke(main, ["rekey", "--new-key"]).output for _ in range(2)]
    assert made[0] != made[1]
    assert all(re.fullmatch(r"\d{8}-[0-9a-f]{4}:[\w+/]{43}=\n", line) for line in made)
    assert KeyRing.parse("".join(made)).ids == tuple(line.partition(":")[0] for line in made)


def test_without_keys_or_a_store_there_is_nothing_to_do(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'none.db'}"
    done = run(url)
    assert (
        done.output
        == "perdure: there are no keys: put them into PERDURE_KEYS, or name their file in PERDURE_KEYS_FILE\n"
    )
    assert run(url, NEW).output == f"perdure: there is no file {tmp_path / 'none.db'}\n"
    assert run(url, "x").output.startswith("perdure: PERDURE_KEYS: key number 1 is none")
    assert not (tmp_path / "none.db").exists()
    assert "Say which store" in CliRunner().invoke(main, ["rekey"]).output
    assert "Say which store once" in run(url, NEW, arguments=("--store", url)).output


# -- in the middle -----------------------------------------------------------------------------------------------------


class Flaky:
    """A store whose pages fail so many times, unless they are small; and of which others have values in use."""

    def __init__(self, fails: int, *results: Page, sessions: Sequence[Sequence[Session]] = ()) -> None:
        self.fails = fails
        self.workers = [*sessions]
        self.results = [*results]
        self.limits: list[int] = []

    async def reseal(self, after: Mark, limit: int) -> Page:
        self.limits.append(limit)
        if len(self.limits) <= self.fails:
            raise StoreUnavailable
        return self.results.pop(0) if self.results else Page(None)

    async def sessions(self) -> tuple[tuple[Session, bool], ...]:
        return tuple((session, False) for session in (self.workers.pop(0) if self.workers else ()))


async def test_a_store_that_can_not_be_used_just_now_is_tried_again_with_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rekey, "_PAUSE", 0)
    store = Flaky(5)
    assert await rekey.walk(store, "pass 1") == Found()
    assert store.limits == [100, 25, 6, 1, 1, 1]
    with pytest.raises(StoreUnavailable):
        await rekey.walk(Flaky(1_000), "pass 1")


async def test_passes_are_made_until_one_finds_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    pages = (Page(None, 5), Page(None, 0, left=2), Page(None, 2))
    assert await rekey.passes(Flaky(0, *pages), KeyRing(NEW)) == Found()
    assert capsys.readouterr().out.splitlines() == [
        f"pass {number}: values stored anew: {count}" for number, count in enumerate((5, 0, 2, 0), 1)
    ]


async def test_there_is_an_end_to_it_if_somebody_goes_on_with_another_key() -> None:
    last = await rekey.passes(Flaky(0, *[Page(None, 1)] * 10), KeyRing(NEW))
    with pytest.raises(SystemExit, match="some process still stores values otherwise: let all of them have these keys"):
        rekey.conclude(last, "under the key 'new'")


@pytest.mark.parametrize("seen", range(4))
async def test_a_process_that_seals_otherwise_is_told_of_if_it_was_there_before_the_last_pass_or_after(
    seen: int, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Session("s", 0, {"host": "db1", "pid": 7, "sealing": "old"})
    workers = [[other] if look == seen else [] for look in range(4)]
    # Two looks at each of two passes: what it wrote in the first is found by the second.
    found = await rekey.passes(Flaky(0, Page(None, 1), sessions=workers), KeyRing(NEW, OLD))
    assert found.others == (("db1:7 (sealed under the key 'old')",) if seen >= 2 else ())


# -- who is at work ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("old", "db1:0 (sealed under the key 'old')"),
        (False, "db1:0 (stored in the clear)"),
        (None, "db1:0 (stored in a way that is not known)"),
    ],
)
def test_a_quiet_worker_that_stores_otherwise_is_named_and_nothing_is_called_final(
    place: Place, said: JSON, told: str
) -> None:
    anyio.run(lambda: fill(place, OLD, tasks=1))
    anyio.run(lambda: at_work(place, said, "new"))
    done = run(place, NEW, OLD)
    assert done.exit_code == 1
    assert done.output.splitlines()[-2:] == [
        f"these processes store values otherwise: {told}",
        "perdure: let all processes have these keys, then do this again",
    ]


@pytest.mark.parametrize("ring", [(NEW,), ("clear", NEW)])
def test_workers_that_store_alike_are_no_hindrance(place: Place, ring: tuple[str, ...]) -> None:
    anyio.run(lambda: fill(place, NEW, tasks=1))
    anyio.run(lambda: at_work(place, False if ring[0] == "clear" else "new"))
    assert run(place, *ring).exit_code == 0


# -- only to look ------------------------------------------------------------------------------------------------------


async def contents(place: Place) -> list[object]:
    return [await place.rows(f"SELECT * FROM perdure.{name} ORDER BY 1, 2") for name in ("task", "entry", "event")]


def test_to_verify_opens_what_carries_the_first_key_too_and_changes_nothing(place: Place) -> None:
    anyio.run(lambda: fill(place, NEW, tasks=3))
    anyio.run(place.rows, "UPDATE perdure.entry SET value = (SELECT params FROM perdure.task WHERE seq = 1)")
    before = anyio.run(contents, place)
    assert run(place, NEW).exit_code == 0, "it looks no closer at what is sealed as it should be"
    done = run(place, NEW, arguments=("--verify",))
    assert done.exit_code == 1
    _, *named, last = done.output.splitlines()
    assert [re.sub("tsk_[^,]*", "it", line) for line in named] == [
        "entry 0 of task it, sealed under the key 'new', does not open: it was changed or moved in the store, or "
        "another key goes by that name"
    ] * 3
    assert last == "perdure: values that can't be opened: 3"
    assert anyio.run(contents, place) == before


def test_to_verify_does_not_seal_what_is_in_the_clear_but_counts_it_and_names_what_is_damaged(place: Place) -> None:
    anyio.run(lambda: fill(place, tasks=2))
    before = anyio.run(contents, place)
    done = run(place, NEW, arguments=("--verify",))
    assert done.exit_code == 0
    assert done.output.splitlines()[1:] == [
        "all values that there are now open with these keys",
        "values in the clear, of which nobody can tell who stored them: 5",
    ]
    assert run(place, "clear", arguments=("--verify",)).output.splitlines()[1:] == done.output.splitlines()[1:2]
    assert anyio.run(contents, place) == before
    anyio.run(place.rows, "UPDATE perdure.entry SET value = '{' WHERE task_seq = 1")
    done = run(place, NEW, arguments=("--verify",))
    assert done.exit_code == 1
    assert "entry 0 of task tsk_" in done.output
    assert "… was damaged: JSONDecodeError" in done.output


@pytest.mark.parametrize(("said", "code"), [("old", 1), (None, 1), ("new", 0), (False, 0)])
def test_to_verify_is_not_enough_while_a_worker_seals_under_a_key_that_is_not_there(
    place: Place, said: JSON, code: int
) -> None:
    anyio.run(lambda: fill(place, NEW, tasks=1))
    anyio.run(lambda: at_work(place, said))
    done = run(place, NEW, arguments=("--verify",))
    assert done.exit_code == code
    assert ("these processes seal under keys that are not here: db1:0" in done.output) is bool(code)


def test_what_was_in_the_clear_is_taken_in_good_faith_and_that_is_said(place: Place) -> None:
    anyio.run(lambda: fill(place, tasks=2))
    done = run(place, NEW)
    assert done.output.splitlines()[1] == (
        "pass 1: values stored anew: 5; found in the clear, and taken in good faith: 5"
    )
    assert CliRunner().invoke(main, ["rekey", "--verify", "--new-key"]).exit_code == 2


async def test_a_long_pass_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rekey, "_SAY_EVERY", 200)
    pages = [Page(Mark(rekey.Table.TASK, 100 * n), 100) for n in (1, 2, 3)]
    await rekey.walk(Flaky(0, *pages, Page(Mark(rekey.Table.ENTRY, 7, "0"), 1)), "pass 1")
    assert capsys.readouterr().out.splitlines() == [
        "pass 1: at task number 200: values stored anew: 200",
        "pass 1: at entry, task number 7: values stored anew: 301",
    ]


@asynccontextmanager
async def stuck(place: Place) -> AsyncGenerator[None]:
    """The command, in a process of its own that has come to the middle of its third page; it is killed at the end."""
    backend = "sqlite" if place.file else "postgres"
    command = [sys.executable, "-c", STUCK.format(backend=backend), "rekey", place.url]
    async with talking(command, env={**os.environ, "PERDURE_KEYS": NEW}) as process:
        assert process.stdout is not None
        while await process.stdout.readline() != b"here\n":
            assert not process.stdout.at_eof()
        yield


async def sealed(place: Place) -> int:
    ((count,),) = await place.rows("SELECT count(*) FROM perdure.task WHERE params LIKE '~1.new.%'")
    return count


async def test_a_kill_in_the_middle_leaves_a_store_that_is_half_sealed_and_whole(place: Place) -> None:
    await place.rows(f"{NUMBERS['sqlite' if place.file else 'postgresql']} {GROW}")
    async with stuck(place):
        assert await sealed(place) == 200
    assert await sealed(place) == 200
    store = place.store(None, NEW)
    await store.open()
    for number in (1, MANY):
        assert (await store.inspect(f"tsk_{number}")).operation.params == {"said": "xyzzy"}
    await store.close()
    done = await asyncio.to_thread(run, place, NEW)
    assert done.exit_code == 0, done.output
    assert f"pass 1: values stored anew: {MANY - 200}" in done.output
    assert await sealed(place) == MANY
