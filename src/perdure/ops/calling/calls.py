"""The verbs: call, resume, watch, answer, cancel, and a look at a server's tools."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from uuid import uuid4

import anyio
from mcp.client import Client
from mcp_types import ElicitResult, Tool

from perdure.client import AnswerRefused, Record, TaskHandle, Tasks
from perdure.client import questions as asking

from . import answering, book, endpoint, text
from .answering import Action
from .arguments import Misfits, arguments
from .desk import Desk
from .endpoint import Endpoint, Page
from .outcome import Code, Outcome
from .typed import Unfit
from .waiting import Row, Waiting, left

__all__ = ["Manner", "Order", "answer", "call", "cancel", "resume", "tools", "watch"]

Questions = Literal["ask", "wait", "leave"]

_AGAIN_WITHIN: Final = 5.0
"""Seconds in which a second Ctrl-C cancels the task."""
_STOPPED_WITHIN: Final = 10.0
"""Seconds to see a task end that was asked to stop."""
_LISTED: Final = 60.0
"""Seconds to list a server's tools in, which the SDK does not bound."""
_MOST_PAGES: Final = 100


@dataclass(frozen=True, slots=True)
class Manner:
    """How to wait. `seconds`: of everything together. `questions`: None asks where there is a terminal, else waits."""

    seconds: float | None = None
    questions: Questions | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """A call that is wanted. `words`: `key=value`; `given`: arguments from a file."""

    server: Endpoint
    tool: str | None
    words: tuple[str, ...] = ()
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])
    key: str | None = None
    detach: bool = False
    manner: Manner = field(default_factory=Manner)


async def call(desk: Desk, order: Order) -> list[Outcome]:
    """Call a tool, and wait for what comes of it."""
    _somebody_to_ask(desk, order.manner)
    deadline = _deadline(order.manner)
    with desk.stop.guard():
        async with desk.connected(order.server, within=_left_until(deadline)) as (client, tasks):
            tool = await _tool(client, order.tool, within=_left_until(deadline))
            given = arguments(order.words, order.given, tool.input_schema)
            key = order.key or uuid4().hex
            begun = time.time()
            handle: TaskHandle | None = None
            with desk.stop.guard():
                seconds = _left_until(deadline)
                handle = await tasks.start(client, tool.name, given, idempotency_key=key, timeout=seconds)
            if handle is None:
                return [_unsure(desk, tool.name, key)]
            if order.detach and handle.is_task:
                return [left(handle, "", code=Code.DONE)]
            if handle.is_task:
                desk.screen.say(f"{text.line(handle.tool)}  {text.line(handle.id)}")
            return await _wait(desk, [Row(handle, begun)], order.manner, deadline)
    return [_interrupted()]


async def resume(desk: Desk, wanted: str | None, server: Endpoint | None, manner: Manner) -> list[Outcome]:
    """Wait for a task that was called before."""
    _somebody_to_ask(desk, manner)
    deadline = _deadline(manner)
    place, task, begun = _sought(desk, wanted, server)
    with desk.stop.guard():
        async with desk.connected(place, within=_left_until(deadline)) as (client, tasks):
            handle = await _resumed(desk, client, tasks, task, _left_until(deadline))
            if isinstance(handle, Outcome):
                return [handle]
            desk.screen.say(f"{text.line(handle.tool)}  {text.line(handle.id)}".strip())
            return await _wait(desk, [Row(handle, begun)], manner, deadline)
    return [_interrupted()]


async def watch(desk: Desk, wanted: Sequence[str], manner: Manner) -> list[Outcome]:
    """Look on while tasks go on, of one server or several. Their questions are shown, and not asked."""
    deadline = _deadline(manner)
    records = _all(desk, wanted)
    _one_token_for_one(desk, [endpoint.named(each.server) for each in records])
    with desk.stop.guard():
        async with AsyncExitStack() as stack:
            sessions: dict[str, tuple[Client, Tasks]] = {}
            rows: list[Row] = []
            for record in records:
                if record.server not in sessions:
                    session = desk.connected(endpoint.named(record.server), within=_left_until(deadline))
                    sessions[record.server] = await stack.enter_async_context(session)
                client, tasks = sessions[record.server]
                rows.append(Row(await tasks.resume(client, book.identity(record)), record.begun_at))
            return await _wait(desk, rows, manner, deadline, may_cancel=False)
    return [_interrupted()]


async def cancel(desk: Desk, wanted: Sequence[str], server: Endpoint | None) -> list[Outcome]:
    """Ask tasks to stop."""
    outcomes: list[Outcome] = []
    for each in wanted:
        place, task, _ = _sought(desk, each, server)
        with desk.stop.guard():
            async with desk.connected(place) as (client, tasks):
                handle = await _task(tasks, client, desk, task)
                await handle.cancel()
                outcomes.append(left(handle, f"{handle.id} is asked to stop", code=Code.DONE))
    return outcomes or [_interrupted()]


async def answer(
    desk: Desk,
    wanted: str,
    words: Sequence[str],
    *,
    action: Action | None,
    question: str | None,
    server: Endpoint | None,
) -> list[Outcome]:
    """Answer what a task asks: by the words, by an action, or at the terminal."""
    place, task, _ = _sought(desk, wanted, server)
    with desk.stop.guard():
        async with desk.connected(place) as (client, tasks):
            handle = await _task(tasks, client, desk, task)
            questions = (await handle.status()).questions
            if not questions:
                raise Unfit(f"the task {handle.id} asks nothing")
            responses = _said(questions, words, action, question)
            if not responses:
                responses = await _at_the_terminal(desk, client, handle, questions)
            try:
                await handle.answer(responses)
            except AnswerRefused as error:
                return [Outcome(Code.FAILED, "refused", str(error), id=handle.id, tool=handle.tool)]
            return [left(handle, f"{handle.id} has its answer", code=Code.DONE)]
    return [_interrupted()]


async def tools(desk: Desk, server: Endpoint) -> list[Tool]:
    """The tools of a server."""
    with desk.stop.guard():
        async with desk.connected(server) as (client, _):
            return await _tools(client)
    return []


# -- what they share ---------------------------------------------------------------------------------------------------


async def _wait(
    desk: Desk, rows: list[Row], manner: Manner, deadline: float | None, *, may_cancel: bool = True
) -> list[Outcome]:
    """Wait, to the end or to a signal. `may_cancel`: whether a second Ctrl-C means the tasks, and not just the look."""
    asks = desk.keyboard is not None and manner.questions in ("ask", None)
    leaves = manner.questions == "leave"
    with desk.stop.guard():
        seconds = _left_until(deadline)
        outcomes = await Waiting(desk.screen, rows, seconds=seconds, asks=asks, leaves=leaves).run()
        for outcome in outcomes:
            if outcome.code in {Code.RUNNING, Code.UNKNOWN} and outcome.status != "lost" and outcome.id:
                desk.screen.say(f"Go on with: {desk.again(outcome.id)}")
        return outcomes
    outcomes = [row.outcome or left(row.handle, "") for row in rows]
    going_on = [row for row in rows if row.outcome is None]
    for row in going_on:
        desk.screen.say(f"Detached. The task goes on: {desk.again(row.handle.id)}")
    if may_cancel and going_on and desk.stop.by_hand and desk.keyboard is not None and await _pressed_again(desk):
        return await _stopped(desk, rows)
    return outcomes


async def _stopped(desk: Desk, rows: list[Row]) -> list[Outcome]:
    """The second Ctrl-C has come."""
    for row in rows:
        await row.handle.cancel()
        desk.screen.say(f"{text.line(row.handle.id)} is asked to stop.")
    return await Waiting(desk.screen, rows, seconds=_STOPPED_WITHIN).run()


async def _pressed_again(desk: Desk) -> bool:
    desk.screen.say(f"Ctrl-C again within {_AGAIN_WITHIN:.0f} s cancels it; Enter leaves at once.")
    pressed = False
    with anyio.move_on_after(_AGAIN_WITHIN):
        async with anyio.create_task_group() as group:

            async def leave() -> None:
                if desk.keyboard is not None:
                    desk.keyboard.forget()
                    await desk.keyboard.line()
                    group.cancel_scope.cancel()

            group.start_soon(leave)
            await desk.stop.another()
            pressed = True
            group.cancel_scope.cancel()
    return pressed


def _sought(desk: Desk, wanted: str | None, server: Endpoint | None) -> tuple[Endpoint, str, float]:
    """The server, the id and the age of what is wanted. With a server that is named, the journal need not know it."""
    records = desk.journal.records(None if server is None else server.name)
    if wanted is None:
        record = book.newest_open(records)
        return endpoint.named(record.server), book.identity(record), record.begun_at
    try:
        record = book.find(records, wanted)
    except Unfit:
        if server is None:
            raise
        return server, wanted, time.time()
    return endpoint.named(record.server), book.identity(record), record.begun_at


def _all(desk: Desk, wanted: Sequence[str]) -> list[Record]:
    records = desk.journal.records()
    if wanted:
        return [book.find(records, each) for each in dict.fromkeys(wanted)]
    found = [each for each in records if each.status is None and each.task_id is not None]
    if not found:
        raise Unfit("the journal has no task that is open")
    return found


def _somebody_to_ask(desk: Desk, manner: Manner) -> None:
    if manner.questions == "ask" and desk.keyboard is None:
        raise Unfit("there is no terminal to ask at: say --questions wait, or leave")


def _one_token_for_one(desk: Desk, servers: Sequence[Endpoint]) -> None:
    """A token is for one server. Which one, nobody said; so there must be one only."""
    origins = {each.origin for each in servers if isinstance(each, Page)}
    if desk.access.token is not None and len(origins) > 1:
        raise Unfit(f"one token must not go to several servers ({', '.join(sorted(origins))}): watch one at a time")


async def _resumed(desk: Desk, client: Client, tasks: Tasks, id: str, seconds: float | None) -> TaskHandle | Outcome:
    with desk.stop.guard():
        return await tasks.resume(client, id, timeout=seconds)
    return _unsure(desk, "", id)


async def _task(tasks: Tasks, client: Client, desk: Desk, id: str) -> TaskHandle:
    """A task that is known to be one: nothing is called here again."""
    record = next((each for each in desk.journal.records() if each.key == id and each.task_id is None), None)
    if record is not None:
        raise Unfit(f"{id} is a call of which nobody knows whether it happened: {desk.again(id)}")
    return await tasks.resume(client, id)


def _said(
    questions: Mapping[str, Any], words: Sequence[str], action: Action | None, question: str | None
) -> dict[str, ElicitResult]:
    if action is not None:
        content: dict[str, Any] | None = {} if action == "accept" else None
        return {answering.action_for(questions, question): ElicitResult(action=action, content=content)}
    if question is not None:
        words = [f"{answering.action_for(questions, question)}.{word}" for word in words]
    filled = answering.content_for(questions, words)
    return {key: ElicitResult(action="accept", content=content) for key, content in filled.items()}


async def _at_the_terminal(
    desk: Desk, client: Client, handle: TaskHandle, questions: Mapping[str, Any]
) -> dict[str, Any]:
    if desk.keyboard is None:
        lines = answering.told(handle.id, questions, several=len(questions) > 1)
        raise Misfits(["say what to answer:", *lines])
    responses: dict[str, Any] = {}
    for key, question in questions.items():
        responses[key] = await asking.ask(client.session, handle.id, key, question)
    return responses


async def _tools(client: Client, *, within: float | None = None) -> list[Tool]:
    found: list[Tool] = []
    cursor: str | None = None
    with anyio.fail_after(_LISTED if within is None else min(_LISTED, within)):
        for _ in range(_MOST_PAGES):
            page = await client.list_tools(cursor=cursor)
            found += page.tools
            cursor = page.next_cursor
            if cursor is None:
                break
    return found


async def _tool(client: Client, name: str | None, *, within: float | None) -> Tool:
    found = await _tools(client, within=within)
    names = ", ".join(each.name for each in found) or "none"
    if name is None:
        raise Unfit(f"say which tool: {names}")
    for each in found:
        if each.name == name:
            return each
    raise Unfit(f"the server has no tool {name!r}; there are: {names}")


def _unsure(desk: Desk, tool: str, key: str) -> Outcome:
    words = f"Interrupted in the middle of the call: {desk.again(key)} finds out what came of it"
    return Outcome(Code.UNKNOWN, "unsure", words, id=key, is_task=False, tool=tool)


def _interrupted() -> Outcome:
    return Outcome(Code.UNKNOWN, "unavailable", "Interrupted before anything was called")


def _deadline(manner: Manner) -> float | None:
    return None if manner.seconds is None else anyio.current_time() + manner.seconds


def _left_until(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - anyio.current_time())
