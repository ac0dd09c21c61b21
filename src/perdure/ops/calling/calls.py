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

from perdure.client import AnswerRefused, TaskHandle, Tasks
from perdure.client import questions as callbacks
from perdure.ops import text

from . import answering, book, endpoint
from .answering import Action
from .arguments import Misfits, arguments
from .desk import Desk, outcome_of
from .endpoint import Endpoint
from .outcome import Code, Outcome
from .seeking import Sought, check_tokens, records_sought, sought, task_sought
from .typed import Unfit
from .waiting import Row, Waiting, left

__all__ = ["CallRequest", "WaitOptions", "answer", "call", "cancel", "resume", "tools", "watch"]

Questions = Literal["ask", "wait", "leave"]

_AGAIN_WITHIN: Final = 5.0
"""Seconds in which a second Ctrl-C cancels the task."""
_STOPPED_WITHIN: Final = 10.0
"""Seconds to see a task end that was asked to stop."""
_LISTED: Final = 60.0
"""Seconds to list a server's tools in, which the SDK does not bound."""
_MOST_PAGES: Final = 100


@dataclass(frozen=True, slots=True)
class WaitOptions:
    """How to wait. `seconds`: of everything together. `questions`: None asks where there is a terminal, else waits."""

    seconds: float | None = None
    questions: Questions | None = None


@dataclass(frozen=True, slots=True)
class CallRequest:
    """A call that is wanted. `words`: `key=value`; `given`: arguments from a file."""

    server: Endpoint
    tool: str | None
    words: tuple[str, ...] = ()
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])
    key: str | None = None
    detach: bool = False
    options: WaitOptions = field(default_factory=WaitOptions)


async def call(desk: Desk, request: CallRequest) -> list[Outcome]:
    """Call a tool, and wait for what comes of it."""
    _somebody_to_ask(desk, request.options)
    deadline = _deadline(request.options)
    rows, otherwise = list[Row](), _interrupted()
    with desk.stop.guard():
        async with desk.connected(request.server, within=_left_until(deadline)) as (client, tasks):
            tool = await _tool(client, request.tool, within=_left_until(deadline))
            given = arguments(request.words, request.given, tool.input_schema)
            key, begun = request.key or uuid4().hex, time.time()
            otherwise = _unsure(desk, tool.name, key)
            with desk.stop.guard():
                seconds = _left_until(deadline)
                handle = await tasks.start(client, tool.name, given, idempotency_key=key, timeout=seconds)
                rows.append(Row(handle, begun))
            await _called(desk, rows, request, deadline)
    return _known(rows) or [otherwise]


async def _called(desk: Desk, rows: list[Row], request: CallRequest, deadline: float | None) -> None:
    """Wait for what was called, unless nobody wants to."""
    for row in rows:
        if request.detach and row.handle.is_task:
            row.outcome = left(row.handle, "", code=Code.DONE)
            return
        if row.handle.is_task:
            desk.screen.say(f"{text.line(row.handle.tool)}  {text.line(row.handle.id)}")
    await _wait(desk, rows, request.options, deadline)


async def resume(desk: Desk, wanted: str | None, server: Endpoint | None, options: WaitOptions) -> list[Outcome]:
    """Wait for a task that was called before."""
    _somebody_to_ask(desk, options)
    deadline = _deadline(options)
    task = sought(desk, wanted, server)
    rows, otherwise = list[Row](), _interrupted()
    with desk.stop.guard():
        async with desk.connected(task.server, within=_left_until(deadline)) as (client, tasks):
            otherwise = _unsure(desk, "", task.id)
            with desk.stop.guard():
                handle = await tasks.resume(client, task.id, timeout=_left_until(deadline))
                desk.screen.say(f"{text.line(handle.tool)}  {text.line(handle.id)}".strip())
                rows.append(Row(handle, task.begun_at))
            await _wait(desk, rows, options, deadline)
    return _known(rows) or [otherwise]


async def watch(desk: Desk, wanted: Sequence[str], options: WaitOptions) -> list[Outcome]:
    """Look on while tasks go on, of one server or several. Their questions are shown, and not asked."""
    deadline = _deadline(options)
    records = records_sought(desk, wanted)
    check_tokens(desk, [endpoint.parse_name(each.server) for each in records])
    rows: list[Row] = []
    with desk.stop.guard():
        async with AsyncExitStack() as stack:
            sessions: dict[str, tuple[Client, Tasks]] = {}
            for record in records:
                if record.server not in sessions:
                    session = desk.connected(endpoint.parse_name(record.server), within=_left_until(deadline))
                    sessions[record.server] = await stack.enter_async_context(session)
                client, tasks = sessions[record.server]
                rows.append(Row(await tasks.resume(client, book.identity(record)), record.begun_at))
            await _wait(desk, rows, options, deadline, may_cancel=False)
    return _known(rows) or [_interrupted()]


async def cancel(desk: Desk, wanted: Sequence[str], server: Endpoint | None) -> list[Outcome]:
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
                    outcomes.append(outcome_of(error, id=each.id))
    reached, missed = tasks[len(outcomes) : len(outcomes) + 1], tasks[len(outcomes) + 1 :]
    return [
        *outcomes,
        *(_broken_off(desk, each.id, f"Interrupted while {each.id} was asked to stop") for each in reached),
        *(_broken_off(desk, each.id, f"Interrupted before {each.id} was asked to stop") for each in missed),
    ]


async def _cancel(desk: Desk, task: Sought, outcomes: list[Outcome]) -> None:
    """What came of it is known before the session is closed, which may be broken off too."""
    async with desk.connected(task.server) as (client, tasks):
        handle = await _handle(client, tasks, task)
        await handle.cancel()
        outcomes.append(left(handle, f"{handle.id} is asked to stop", code=Code.DONE))


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
    task = task_sought(desk, wanted, server)
    outcome = _interrupted()
    with desk.stop.guard():
        async with desk.connected(task.server) as (client, tasks):
            handle = await _handle(client, tasks, task)
            questions = (await handle.status()).questions
            if not questions:
                return [Outcome(Code.FAILED, "refused", f"{handle.id} asks nothing", id=handle.id, tool=handle.tool)]
            responses = _said(questions, words, action, question)
            if not responses:
                responses = await _at_the_terminal(desk, client, handle, _asked(questions, question))
            outcome = _broken_off(desk, handle.id, "Interrupted while it was answered")
            outcome = await _answered(handle, responses)
    return [outcome]


async def _answered(handle: TaskHandle, responses: Mapping[str, Any]) -> Outcome:
    try:
        taken = await handle.answer(responses)
    except AnswerRefused as error:
        return Outcome(Code.FAILED, "refused", str(error), id=handle.id, tool=handle.tool)
    late = ", ".join(key for key in responses if key not in taken)
    if late:
        words = f"{handle.id} does not ask that any more, and has not taken it: {late}"
        return Outcome(Code.FAILED, "refused", words, id=handle.id, tool=handle.tool)
    return left(handle, f"{handle.id} has its answer", code=Code.DONE)


async def tools(desk: Desk, server: Endpoint, found: list[Tool]) -> list[Outcome]:
    """Put the tools of a server into `found`; nothing else comes of it, unless it is broken off."""
    with desk.stop.guard():
        async with desk.connected(server) as (client, _):
            found += await _tools(client)
        return []
    return [_interrupted()]


# -- what they share ---------------------------------------------------------------------------------------------------


async def _wait(
    desk: Desk, rows: list[Row], options: WaitOptions, deadline: float | None, *, may_cancel: bool = True
) -> None:
    """Wait, to the end or to a signal; the rows have what came of it.

    `may_cancel`: whether a second Ctrl-C means the tasks, and not just the look.
    """
    asks = desk.keyboard is not None and options.questions in ("ask", None)
    leaves = options.questions == "leave"
    with desk.stop.guard():
        seconds = _left_until(deadline)
        outcomes = await Waiting(desk.screen, rows, seconds=seconds, asks=asks, leaves=leaves).run()
        for outcome in outcomes:
            if outcome.code in {Code.RUNNING, Code.UNKNOWN} and outcome.status != "lost" and outcome.id:
                desk.screen.say(f"Go on with: {desk.again(outcome.id)}")
        return
    going_on = [row for row in rows if row.outcome is None]
    for row in going_on:
        desk.screen.say(f"Detached. The task goes on: {desk.again(row.handle.id)}")
    if may_cancel and going_on and desk.stop.by_hand and desk.keyboard is not None and await _pressed_again(desk):
        await _stopped(desk, going_on)


def _known(rows: list[Row]) -> list[Outcome]:
    """What came of each, also when everything was broken off: what has no end yet goes on."""
    return [row.outcome or left(row.handle, "") for row in rows]


async def _stopped(desk: Desk, rows: list[Row]) -> None:
    """The second Ctrl-C has come."""
    for row in rows:
        await row.handle.cancel()
        desk.screen.say(f"{text.line(row.handle.id)} is asked to stop.")
    await Waiting(desk.screen, rows, seconds=_STOPPED_WITHIN).run()


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
            pressed = await desk.stop.another()
            group.cancel_scope.cancel()
    return pressed


def _somebody_to_ask(desk: Desk, options: WaitOptions) -> None:
    if options.questions == "ask" and desk.keyboard is None:
        raise Unfit("there is no terminal to ask at: say --questions wait, or leave")


async def _handle(client: Client, tasks: Tasks, task: Sought) -> TaskHandle:
    handle = await tasks.resume(client, task.id)
    if not task.is_known:
        # A mistyped id must not stay on record as a task that goes on.
        await handle.status()
    return handle


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


def _asked(questions: Mapping[str, Any], question: str | None) -> dict[str, Any]:
    """The one that was named, or all."""
    if question is None:
        return dict(questions)
    key = answering.action_for(questions, question)
    return {key: questions[key]}


async def _at_the_terminal(
    desk: Desk, client: Client, handle: TaskHandle, questions: Mapping[str, Any]
) -> dict[str, Any]:
    if desk.keyboard is None:
        lines = answering.told(handle.id, questions, several=len(questions) > 1)
        raise Misfits(["say what to answer:", *lines])
    responses: dict[str, Any] = {}
    for key, question in questions.items():
        responses[key] = await callbacks.ask(client.session, handle.id, key, question)
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


def _broken_off(desk: Desk, id: str, words: str) -> Outcome:
    """Something about a task, which goes on."""
    return Outcome(Code.UNKNOWN, "unavailable", f"{words}: {desk.again(id)}", id=id)


def _deadline(options: WaitOptions) -> float | None:
    return None if options.seconds is None else anyio.current_time() + options.seconds


def _left_until(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - anyio.current_time())
