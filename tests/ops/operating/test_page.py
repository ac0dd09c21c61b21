"""The page for operators shows what its commands print, on a store such as it speaks of."""

import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import anyio
import pytest
from click.testing import CliRunner

from perdure.domain import ids
from perdure.domain.journal import Entry, EntryState, Verb, Waits
from perdure.domain.model import Asked, Claim, Completed, Demand, JSONObject, NewTask, Operation, Owner
from perdure.ops.cli import main
from perdure.ops.operating import tasks
from perdure.store.sqlite import SQLiteStore
from perdure.testing import VirtualClock

PAGE: Final = Path(__file__).parents[3] / "docs" / "howto" / "operating.md"
BLOCK: Final = re.compile(r"```\n(?P<said>\$ .*?)```", re.DOTALL)
PASSING: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z|\b[0-9a-f]{16}\b|(?<=as )tsk_\w{32}")
ADA, BOB = Owner("acme", "ada"), Owner("acme", "bob")
MINUTE: Final = 60_000


def commands() -> Iterator[tuple[str, str]]:
    """What the page has typed, and what it shows below that."""
    for block in BLOCK.findall(PAGE.read_text("utf-8")):
        typed, said = block.split("\n", 1)
        yield typed.removeprefix("$ "), said


def new(number: int, tool: str, owner: Owner) -> NewTask:
    task_id = ids.mint(lambda count: bytes((number * 37 + 11 * each) % 256 for each in range(count)))
    return NewTask(task_id, owner, Operation("tools/call", tool, {}), ttl_ms=7 * 24 * 60 * MINUTE)


class Past:
    """A store to which things happened a while ago."""

    def __init__(self, path: Path) -> None:
        self.now = round(time.time() * 1000)
        self.clock = VirtualClock()
        self.made = 0
        self.store = SQLiteStore(f"sqlite:///{path}", self.clock)

    async def claimed(self, tool: str, owner: Owner, minutes: int, session: str | None = None) -> Claim:
        """A task that was made and claimed so many minutes ago."""
        self.clock.now = self.now - minutes * MINUTE
        self.made += 1
        await self.store.create(new(self.made, tool, owner))
        info: JSONObject = {"host": "web1", "pid": 4242, "handlers": ["tools/call:predict"]}
        holder = session or (await self.store.open_session(24 * 60 * 60 * MINUTE, info)).id
        (claim,) = await self.store.claim(holder, [Demand(f"tools/call:{tool}", 1)], 1)
        return claim

    async def fill(self) -> None:
        await self.store.open()
        over = await self.claimed("train", ADA, 26 * 60)
        self.clock.advance(10 * MINUTE)
        await self.store.finish(over, Completed({"content": []}))
        asking = await self.claimed("predict", BOB, 3 * 60 + 5)
        await self.store.record(asking, Entry("0", Verb.STEP, "load", EntryState.DONE))
        await self.store.park(asking, Waits(asked={"model": Asked({"method": "elicitation/create"}, "1")}))
        failed = await self.claimed("train", ADA, 40)
        await self.store.record(failed, Entry("0", Verb.STEP, "fetch", EntryState.DONE))
        self.clock.advance(MINUTE)
        await self.store.retry(failed, 120 * MINUTE, "ConnectionError: line dropped")
        await self.claimed("predict", ADA, 5, failed.session)
        self.clock.now = self.now
        await self.store.close()


@pytest.fixture
def past(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tasks.db"
    anyio.run(Past(path).fill)
    monkeypatch.setenv("PERDURE_STORE", f"sqlite:///{path}")


@pytest.mark.usefixtures("past")
def test_each_command_prints_what_the_page_shows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    shown = list(commands())
    assert len(shown) >= 6
    for typed, said in shown:
        _, *words = shlex.split(typed)
        done = CliRunner().invoke(main, words)
        output = done.output.replace(str(tmp_path), "/var/lib/app")
        assert PASSING.sub("*", output) == PASSING.sub("*", said), f"{typed}\n{output}"


def test_the_page_says_of_each_command_and_filter_what_it_is_for() -> None:
    text = PAGE.read_text("utf-8")
    for name in tasks.commands:
        assert f"tasks {name}" in text
    for option in ("status", "tool", "tenant", "principal", "older", "newer", "unchanged", "limit", "contents", "json"):
        assert f"--{option}" in text
