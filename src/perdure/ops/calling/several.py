"""The verbs about several tasks, of several servers: look on, and ask them to stop.

What one server does keeps nobody from the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from perdure.client import Record, Snapshot

from . import book, endpoint
from .calls import WaitOptions, broken_off, deadline_of, handle_of, left_until, say_how_to_come_back, say_how_to_go_on
from .desk import Desk, outcome_of
from .outcome import WORKING, Code, Outcome
from .seeking import Sought, check_tokens, records_sought, task_sought
from .waiting import Row, Waiting, busy

__all__ = ["cancel", "watch"]


async def watch(desk: Desk, wanted: Sequence[str], options: WaitOptions) -> list[Outcome]:
    """Look on while tasks go on. Their questions are shown, and not asked."""
    deadline = deadline_of(options)
    records = records_sought(desk, wanted)
    check_tokens(desk, [place for each in records if (place := endpoint.named(each.server)) is not None])
    look = _Look(desk, deadline, named=len(records) > 1)
    with desk.stop.guard():
        await look.at(records)
        say_how_to_go_on(desk, [look.rows[each.number] for each in records if each.number in look.rows])
        return [look.outcome(each) for each in records]
    say_how_to_come_back(desk, [*look.rows.values()])
    return [look.outcome(each) for each in records]


class _Look:
    """A look at tasks, by the numbers of their records: `rows` of those whose servers there is a session with."""

    def __init__(self, desk: Desk, deadline: float | None, *, named: bool) -> None:
        self.rows: dict[int, Row] = {}
        self._desk = desk
        self._deadline = deadline
        self._missed: dict[int, Outcome] = {}
        self._waiting = Waiting(desk.screen, desk.hints, seconds=left_until(deadline), named=named)

    async def at(self, records: Sequence[Record]) -> None:
        """Look at these, to their ends."""
        by_server: dict[str, list[Record]] = {}
        for each in records:
            by_server.setdefault(each.server, []).append(each)
        async with self._waiting.painted(), anyio.create_task_group() as group:
            for server, its_own in by_server.items():
                group.start_soon(self._at_one, server, its_own)

    async def _at_one(self, server: str, records: Sequence[Record]) -> None:
        try:
            place = endpoint.parse_name(server)
            async with self._desk.connected(place, within=left_until(self._deadline)) as (client, tasks):
                rows = [Row(await tasks.resume(client, book.identity(each)), each.begun_at) for each in records]
                self.rows.update({each.number: row for each, row in zip(records, rows, strict=True)})
                await self._waiting.wait(rows)
        except Exception as error:  # noqa: BLE001 - boundary: a server, and whatever the SDK makes of it
            for each in records:
                self._missed[each.number] = outcome_of(error, self._desk.hints, id=book.identity(each))

    def outcome(self, record: Record) -> Outcome:
        """What came of one; if nothing did, it goes on."""
        row = self.rows.get(record.number)
        if row is not None and row.outcome is not None:
            return row.outcome
        if record.number in self._missed:
            return self._missed[record.number]
        if row is not None:
            return row.left("")
        return Outcome(Code.RUNNING, WORKING, id=book.identity(record), tool=record.tool)


async def cancel(desk: Desk, wanted: Sequence[str], server: endpoint.Endpoint | None) -> list[Outcome]:
    """Ask tasks to stop. Of each there is what came of it: one that can't be asked keeps nobody from asking others."""
    tasks = [task_sought(desk, each, server) for each in dict.fromkeys(wanted)]
    check_tokens(desk, [each.server for each in tasks])
    outcomes: list[Outcome] = []
    with desk.stop.guard():
        for number, each in enumerate(tasks):
            try:
                await _cancel(desk, each, outcomes)
            except Exception as error:  # noqa: BLE001 - boundary: a server, and whatever the SDK makes of it
                if len(outcomes) == number:
                    outcomes.append(outcome_of(error, desk.hints, id=each.id))
    reached, missed = tasks[len(outcomes) : len(outcomes) + 1], tasks[len(outcomes) + 1 :]
    return [
        *outcomes,
        *(broken_off(desk, each.id, f"Interrupted while {each.id} was asked to stop") for each in reached),
        *(broken_off(desk, each.id, f"Interrupted before {each.id} was asked to stop") for each in missed),
    ]


async def _cancel(desk: Desk, task: Sought, outcomes: list[Outcome]) -> None:
    """What came of it is known before the session is closed, which may be broken off too."""
    async with desk.connected(task.server) as (client, tasks), busy(desk.screen, f"asking {task.id} to stop"):
        handle = await handle_of(client, tasks, task)
        seen = await handle.status()
        if not seen.is_terminal:
            await handle.cancel()
        code, words = _asked(seen)
        outcomes.append(Outcome(code, seen.status, words, id=handle.id, tool=handle.tool))


def _asked(seen: Snapshot) -> tuple[Code, str]:
    """What comes of asking a task to stop that was in this state. One that came to another end was not stopped."""
    match seen.status:
        case "cancelled":
            return Code.DONE, f"{seen.id} was cancelled before"
        case "completed" | "failed":
            return Code.FAILED, f"{seen.id} is over, and was not stopped: it is {seen.status}"
        case _:
            return Code.DONE, f"{seen.id} is asked to stop"
