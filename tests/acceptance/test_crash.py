"""The promise itself: whatever kills the server, however often, no task is lost and none is completed twice.

A client creates 200 tasks of every kind, polls them, answers what they ask and cancels some, while the server is killed
20 times at random moments, also while it starts. Then everything is compared with everything: what the client saw, what
the tools did (their log), and every change of every task (a trigger in the store notes each as it is committed).
"""

import asyncio
import json
import os
import random
import secrets
import sqlite3
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from tests.acceptance.support import CRASH_SERVER, Effect, Server, connected, effects, free_port, rows, start
from tests.support import eventually
from tests.wire.support import TERMINAL, Client

JSON = Any

TASKS: Final = 200
KILLS: Final = 20
LONGEST_LIFE: Final = 1.2
"""Seconds that a server lives before it is killed, at most."""
POLLERS: Final = 4

TRIGGER: Final = """
CREATE TABLE audit (position INTEGER PRIMARY KEY, seq, before, after, old_version, version, old_updated, updated);
CREATE TRIGGER audit AFTER UPDATE ON task BEGIN
    INSERT INTO audit (seq, before, after, old_version, version, old_updated, updated)
    VALUES (NEW.seq, OLD.status, NEW.status, OLD.version, NEW.version, OLD.updated_at, NEW.updated_at);
END;
"""

# Kind -> its arguments beside the label, how many of 20 tasks are of it, and whether it is one that may be cancelled.
KINDS: Final[dict[str, tuple[Callable[[random.Random], dict[str, JSON]], int, bool]]] = {
    "short": (lambda _: {}, 2, True),
    "long": (lambda rng: {"seconds": rng.uniform(0.5, 2.5)}, 4, True),
    "threaded": (lambda rng: {"seconds": rng.uniform(0.1, 0.8)}, 2, True),
    "one_question": (lambda _: {}, 3, True),
    "three_questions": (lambda _: {}, 3, True),
    "tool_error": (lambda _: {}, 1, False),
    "mcp_error": (lambda _: {}, 1, False),
    "progress": (lambda rng: {"steps": rng.randrange(1, 8)}, 2, True),
    "cancellable": (lambda rng: {"seconds": rng.uniform(0.5, 3), "stubborn": rng.random() < 0.3}, 2, True),
}
ASKING: Final = frozenset({"one_question", "three_questions"})
MCP_ERROR: Final = -31999


@dataclass
class Record:
    """A task as its client knows it."""

    id: str
    kind: str
    label: str
    cancels: bool
    """The client is going to cancel it."""
    patient: bool
    """Nobody answers it before the last kill."""
    cancelled: bool = False
    """A cancel was acknowledged."""
    acknowledged: dict[str, str] = field(default_factory=dict[str, str])
    """Answers that the server took."""
    unsure: dict[str, str] = field(default_factory=dict[str, str])
    """Answers that were sent and never acknowledged: stored or not."""
    final: JSON = None
    """The first terminal snapshot that the client saw."""
    quiet_from: int = 0
    """How long the log of effects was then."""


class Storm:
    """The client's side and the killer's."""

    def __init__(self, folder: Path, client: Client, port: int, rng: random.Random) -> None:
        self.folder = folder
        self.client = client
        self.port = port
        self.rng = rng
        self.records: list[Record] = []
        self.lost: dict[str, str] = {}
        """Label -> kind of the creates that got no response."""
        self.pending: asyncio.Queue[Record | None] = asyncio.Queue()
        self.quota = asyncio.Semaphore(0)
        self.up = asyncio.Event()
        self.calm = False
        """No server is going to be killed any more."""
        self.interrupted: list[int] = []
        """How many tasks were unfinished, at each kill."""

    # -- the killer ----------------------------------------------------------------------------------------------------

    async def rage(self) -> None:
        """One server after the other, each killed."""
        for kill in range(KILLS):
            last = kill == KILLS - 1
            for _ in range(TASKS if last else TASKS // (KILLS - 8)):
                self.quota.release()
            early = 0 < kill < KILLS - 1 and self.rng.random() < 0.2
            async with self.server(anew=early) as server:
                if kill == 0:
                    await server.listening()
                    self.audit()
                # Sleeping is the point here: the moment of death must depend on nothing that the server does.
                if early:
                    await asyncio.sleep(self.rng.uniform(0.2, 1.2))  # while it starts, or just after
                else:
                    await server.listening()
                    self.up.set()
                    await asyncio.sleep(self.rng.uniform(0.05, LONGEST_LIFE))
                    # The first server may not have answered its first call by then. Later ones have much to lose.
                    await eventually(lambda: any(record.final is None for record in self.records), "nothing to lose")
                if last:
                    await eventually(lambda: len(self.records) == TASKS, "all tasks are created")
                self.up.clear()
                self.interrupted.append(sum(record.final is None for record in self.records))
                await server.kill()

    @asynccontextmanager
    async def server(self, *, anew: bool = False) -> AsyncGenerator[Server]:
        """A server; one that is to be killed while it starts has to start `anew`."""
        server = await start(CRASH_SERVER, self.folder, port=self.port, anew=anew)
        try:
            yield server
        finally:
            if server.alive:
                await server.kill()

    def audit(self) -> None:
        with closing(sqlite3.connect(self.folder / "tasks.db", timeout=30)) as connection:
            connection.executescript(TRIGGER)

    # -- the client ----------------------------------------------------------------------------------------------------

    async def create(self) -> None:
        """Make tasks until there are enough handles."""
        plan = [kind for kind, (_, share, _) in KINDS.items() for _ in range(share * TASKS // 20)]
        self.rng.shuffle(plan)
        await self.up.wait()
        for number, kind in enumerate(plan):
            await self.quota.acquire()
            while not await self.create_one(kind, f"{kind}-{number}-{len(self.lost)}"):
                pass

    async def create_one(self, kind: str, label: str) -> bool:
        """One `tools/call`; whether its handle came back."""
        arguments, _, cancels = KINDS[kind]
        try:
            task_id = await self.client.start(kind, {"label": label, **arguments(self.rng)})
        except httpx2.ConnectError:  # the request never left
            await self.up.wait()
            return False
        except httpx2.TransportError:
            self.lost[label] = kind
            await self.up.wait()
            return False
        patient = kind in ASKING and self.rng.random() < 0.5
        record = Record(task_id, kind, label, cancels and not patient and self.rng.random() < 0.25, patient)
        self.records.append(record)
        self.pending.put_nowait(record)
        return True

    async def tend(self) -> None:
        """Look after one task after the other, until there is a None."""
        while (record := await self.pending.get()) is not None:
            try:
                await self.look(record)
            except httpx2.TransportError:
                await self.up.wait()
            if record.final is None:
                self.pending.put_nowait(record)
            await asyncio.sleep(0.005)
            if self.rng.random() < 0.2:
                await self.look_again()

    async def look(self, record: Record) -> None:
        """Poll a task, and do what its client has to do."""
        if record.cancels and not record.cancelled and self.rng.random() < 0.2:
            await self.client.cancel(record.id)
            record.cancelled = True
        task = (await self.client.get(record.id)).result
        if task["status"] in TERMINAL:
            record.final, record.quiet_from = task, (self.folder / "effects.log").stat().st_size
        elif task["status"] == "input_required" and (self.calm or not record.patient):
            await self.answer(record, task["inputRequests"])

    async def look_again(self) -> None:
        """Poll a task that is over. That it has not changed is checked by the client's own history."""
        record = self.rng.choice(self.records)
        if record.final is not None:
            try:
                await self.client.get(record.id)
            except httpx2.TransportError:
                await self.up.wait()

    async def answer(self, record: Record, asked: dict[str, JSON]) -> None:
        """Answer some of the outstanding questions, all of them in the end."""
        again = set(asked) & set(record.acknowledged)
        assert not again, f"{record.label}: answered and asked again: {again}"
        for key in asked:
            record.unsure.pop(key, None)  # asked again, so the answer that got no acknowledgement was not stored
        chosen = [key for key in asked if self.rng.random() < 0.7] or list(asked)
        answers = {key: secrets.token_hex(4) for key in chosen}
        record.unsure |= answers
        await self.client.update(record.id, {key: accept(answer) for key, answer in answers.items()})
        for key in chosen:
            record.acknowledged[key] = record.unsure.pop(key)
        if self.rng.random() < 0.3:  # the first answer wins: this one comes too late
            await self.client.update(record.id, {key: accept("too late") for key in chosen})


def accept(text: str) -> JSON:
    return {"action": "accept", "content": {"text": text}}


# -- the judgement -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """One committed change of a task."""

    before: str
    after: str
    old_version: int
    version: int
    old_updated: int
    updated: int


class Judge:
    """What the disk says, against what the client saw."""

    def __init__(self, folder: Path) -> None:
        self.tasks = {
            task_id: (seq, status, version, updated, json.loads(params)["arguments"]["label"], result, error)
            for task_id, seq, status, version, updated, params, result, error in rows(
                folder, "SELECT id, seq, status, version, updated_at, params, result, error FROM task"
            )
        }
        self.changes: defaultdict[int, list[Change]] = defaultdict(list)
        for _, seq, *change in rows(folder, "SELECT * FROM audit ORDER BY position"):
            self.changes[seq].append(Change(*change))
        self.effects: defaultdict[str, list[Effect]] = defaultdict(list)
        for effect in effects(folder):
            self.effects[effect.task].append(effect)

    def nothing_is_lost_or_made_up(self, records: list[Record], lost: dict[str, str]) -> None:
        known = {record.id for record in records}
        assert known <= set(self.tasks), "a handle that names nothing"
        strangers = [row[4] for task_id, row in self.tasks.items() if task_id not in known]
        assert set(strangers) <= set(lost), "a task that nobody asked for"
        labels = [row[4] for row in self.tasks.values()]
        assert len(labels) == len(set(labels)), "one call became two tasks"

    def history_is_lawful(self, task_id: str) -> None:
        """Every change of the task, as it was committed."""
        seq, status, version, updated, *_ = self.tasks[task_id]
        changes = self.changes[seq]
        assert [change.old_version for change in changes] == list(range(1, len(changes) + 1))
        assert [change.version for change in changes] == list(range(2, len(changes) + 2))
        assert all(change.updated >= change.old_updated for change in changes)
        assert not [change for change in changes if change.before in TERMINAL], "a terminal task was written to"
        assert sum(change.after in TERMINAL for change in changes) == (status in TERMINAL)
        if changes:
            assert (changes[-1].after, changes[-1].version, changes[-1].updated) == (status, version, updated)

    def ended_once(self, record: Record) -> None:
        """The client's task came to what exactly one of its runs came to, and stayed there."""
        final = record.final
        _, status, _, _, _, result, error = self.tasks[record.id]
        assert status == final["status"]
        did = self.effects[record.id]
        late = [effect for effect in did if effect.offset >= record.quiet_from]
        assert not late, f"{record.label} was over, and still ran: {late}"
        if status == "cancelled":
            assert record.cancels, f"{record.label}: nobody cancelled it"
            return
        stored = json.loads(error if status == "failed" else result)
        token = self.token_of(record, stored)
        events = [effect.event for effect in did if effect.token == token]
        assert events in (["start", "end"], ["start", "told to stop", "end"]), f"{record.label}: {did}"
        assert did[-1].token == token, f"{record.label}: a run came after the one that completed it"

    def token_of(self, record: Record, stored: JSON) -> str:
        """The run that the stored end names; and that end is the one which the kind has to come to."""
        final = record.final
        if record.kind == "mcp_error":
            assert final["status"] == "failed"
            assert final["error"] == stored == stored | {"code": MCP_ERROR, "data": {"label": record.label}}
            return stored["message"]
        assert final["status"] == "completed"
        assert final["result"]["content"] == stored["content"]
        if record.kind == "tool_error":
            assert final["result"]["isError"] is True
            return stored["content"][0]["text"].rpartition(" ")[2]  # the SDK puts a sentence before it
        assert not final["result"].get("isError")
        structured = stored["structuredContent"]
        assert final["result"]["structuredContent"] == structured
        if record.kind in ASKING:
            # Acknowledged, or stored by an update whose acknowledgement was lost.
            assert structured["answers"] == record.acknowledged | record.unsure, record.label
        return structured["token"]


def judge(storm: Storm) -> None:
    verdict = Judge(storm.folder)
    verdict.nothing_is_lost_or_made_up(storm.records, storm.lost)
    for task_id in verdict.tasks:
        verdict.history_is_lawful(task_id)
    for record in storm.records:
        verdict.ended_once(record)
    unfinished = {row[0] for row in verdict.tasks.values() if row[1] not in TERMINAL}
    assert {seq for (seq,) in rows(storm.folder, "SELECT task_seq FROM run WHERE session IS NULL")} == unfinished
    assert not rows(storm.folder, "SELECT * FROM session"), "a lease outlives its worker"
    assert rows(storm.folder, "PRAGMA integrity_check") == [("ok",)]


def was_a_storm(storm: Storm) -> None:
    """The kills met what they were meant to meet; else all the rest proves little."""
    assert len(storm.interrupted) == KILLS
    assert all(storm.interrupted), "there was nothing to lose"
    attempts = [effect.attempt for effect in effects(storm.folder, event="start")]
    print(f"unfinished at the kills: {storm.interrupted}; runs: {len(attempts)}; creates lost: {len(storm.lost)}")
    assert max(attempts) > KILLS // 4, "hardly any run was killed"
    assert sum(record.cancelled for record in storm.records) > 5


async def parked_tasks_are_as_they_were(storm: Storm) -> None:
    """After the last kill, those that nobody answered so far still ask."""
    patient = [record for record in storm.records if record.patient]
    assert len(patient) > 5
    for record in patient:
        task = await storm.client.until(record.id, "input_required")
        assert set(task["inputRequests"]) == ({"name"} if record.kind == "one_question" else {"left", "right"})


def lost_ones_are_settled(storm: Storm) -> bool:
    """Tasks whose handles nobody got have ended, or wait for answers that will not come."""
    known = {record.id for record in storm.records}
    found = rows(storm.folder, "SELECT id, name, status FROM task")
    return all(
        status == "input_required" if kind in ASKING else status in TERMINAL
        for task_id, kind, status in found
        if task_id not in known
    )


@pytest.mark.slow
@pytest.mark.timeout(300)  # twenty-one servers, one after the other
async def test_twenty_kills_lose_no_task_and_complete_none_twice(tmp_path: Path) -> None:
    seed = int(os.environ.get("CRASH_SEED") or secrets.randbelow(1 << 32))
    print(f"again with: CRASH_SEED={seed}")
    port = free_port()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connected(port))
        storm = Storm(tmp_path, client, port, random.Random(seed))
        async with asyncio.TaskGroup() as group:
            for _ in range(POLLERS):
                group.create_task(storm.tend())
            creator = group.create_task(storm.create())
            await storm.rage()
            await creator
            server = await stack.enter_async_context(storm.server())
            await server.listening()
            await parked_tasks_are_as_they_were(storm)
            storm.calm = True
            storm.up.set()
            await eventually(lambda: all(record.final is not None for record in storm.records), "all tasks end")
            await eventually(lambda: lost_ones_are_settled(storm), "the tasks of lost handles end too")
            for _ in range(POLLERS):
                storm.pending.put_nowait(None)
        for record in storm.records:
            assert (await client.get(record.id)).result["status"] == record.final["status"]
        await server.stop()
        assert not server.complaints(), server.output.read_text()
    was_a_storm(storm)
    judge(storm)
