"""`perdure rekey`: what it says and does, on a file and on a server, also when it is killed in the middle of it."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner, Result

from perdure.domain.errors import StoreUnavailable
from perdure.ops import rekey, stores
from perdure.ops.cli import main
from perdure.store.keys import KeyRing
from perdure.store.reseal import Mark, Page
from tests.store.sealed import NEW, OLD, Place
from tests.store.support import DONE, new_task, running, step

MANY = 500
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


def run(place: Place | str, *keys: str, arguments: tuple[str, ...] = ()) -> Result:
    url = place if isinstance(place, str) else place.url
    return CliRunner().invoke(main, ["rekey", url, *arguments], env={"PERDURE_KEYS": ",".join(keys)})


def test_a_store_is_sealed_under_the_new_key_and_the_old_one_is_needed_no_more(place: Place) -> None:
    anyio.run(lambda: fill(place, OLD, tasks=3))
    shown = stores.described(place.url)
    for changed in (8, 0):
        done = run(place, NEW, OLD)
        first, *passes, last = done.output.splitlines()
        assert (done.exit_code, first) == (0, f"{shown}: all values are to be stored under the key 'new'")
        assert passes == [f"pass 1: values stored anew: {changed}", *["pass 2: values stored anew: 0"] * bool(changed)]
        assert last == "all values are stored under the key 'new'; no other key is needed any more"
    anyio.run(lambda: fill(place, NEW))
    done = run(place, OLD)
    assert done.exit_code == 1
    assert "has tasks that were sealed under the key 'new', and it is not among the keys here" in done.output


def test_encryption_may_be_given_up(place: Place) -> None:
    anyio.run(lambda: fill(place, OLD, tasks=1))
    done = run(place, "clear", OLD)
    assert done.output.splitlines()[1:] == [
        "pass 1: values stored anew: 2",
        "pass 2: values stored anew: 0",
        "all values are stored in the clear; no other key is needed any more",
    ]
    anyio.run(lambda: fill(place))


def test_what_can_not_be_opened_is_named_and_ends_it_with_status_1(place: Place) -> None:
    anyio.run(lambda: fill(place, OLD, tasks=2))
    anyio.run(place.rows, "UPDATE perdure.entry SET value = '~1.lost.AAAA' WHERE task_seq = 1")
    done = run(place, NEW, OLD)
    assert done.exit_code == 1
    *_, named, last = done.output.splitlines()
    assert re.match("can't be opened: entry 0 of task tsk_.*: A stored value .* under the key 'lost' ", named)
    assert last == "perdure: values that can't be opened and were left as they are: 1"


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

    def __init__(self, fails: int, *results: Page) -> None:
        self.fails = fails
        self.results = [*results]
        self.limits: list[int] = []

    async def reseal(self, after: Mark, limit: int) -> Page:
        self.limits.append(limit)
        if len(self.limits) <= self.fails:
            raise StoreUnavailable
        return self.results.pop(0) if self.results else Page(None)


async def test_a_store_that_can_not_be_used_just_now_is_tried_again_with_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rekey, "_PAUSE", 0)
    store = Flaky(5)
    assert await rekey.walk(store, 1) == Page(None)
    assert store.limits == [100, 25, 6, 1, 1, 1]
    with pytest.raises(StoreUnavailable):
        await rekey.walk(Flaky(1_000), 1)


async def test_passes_are_made_until_one_finds_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert await rekey.passes(Flaky(0, Page(None, 5), Page(None, 0, left=2), Page(None, 2))) == Page(None)
    assert capsys.readouterr().out.splitlines() == [
        f"pass {number}: values stored anew: {count}" for number, count in enumerate((5, 0, 2, 0), 1)
    ]


async def test_there_is_an_end_to_it_if_somebody_goes_on_with_another_key() -> None:
    last = await rekey.passes(Flaky(0, *[Page(None, 1)] * 10))
    with pytest.raises(SystemExit, match="some process still stores values otherwise: let all of them have these keys"):
        rekey.conclude(last, "under the key 'new'")


async def test_a_long_pass_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rekey, "_SAY_EVERY", 200)
    pages = [Page(Mark(rekey.Table.TASK, 100 * n), 100) for n in (1, 2, 3)]
    await rekey.walk(Flaky(0, *pages, Page(Mark(rekey.Table.ENTRY, 7, "0"), 1)), 1)
    assert capsys.readouterr().out.splitlines() == [
        "pass 1: at task number 200: values stored anew: 200",
        "pass 1: at entry, task number 7: values stored anew: 301",
    ]


@contextmanager
def stuck(place: Place) -> Generator[None]:
    """The command, in a process of its own that has come to the middle of its third page; it is killed at the end."""
    backend = "sqlite" if place.file else "postgres"
    command = [sys.executable, "-c", STUCK.format(backend=backend), "rekey", place.url]
    environment = {**os.environ, "PERDURE_KEYS": NEW}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert "here\n" in iter(process.stdout.readline, "")
            yield
        finally:
            process.send_signal(signal.SIGKILL)


async def sealed(place: Place) -> int:
    ((count,),) = await place.rows("SELECT count(*) FROM perdure.task WHERE params LIKE '~1.new.%'")
    return count


async def test_a_kill_in_the_middle_leaves_a_store_that_is_half_sealed_and_whole(place: Place) -> None:
    await place.rows(f"{NUMBERS['sqlite' if place.file else 'postgresql']} {GROW}")
    with stuck(place):
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
