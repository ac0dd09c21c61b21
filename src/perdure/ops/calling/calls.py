"""The verbs about one call: call, resume and answer it; and a look at a server's tools. Those of several: `several`."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal
from uuid import uuid4

import anyio
from mcp.client import Client
from mcp_types import ElicitResult, Tool

from perdure.client import AnswerRefused, ClientError, TaskHandle, Tasks, Unsure
from perdure.client import questions as callbacks
from perdure.client.listing import honours_keys_of
from perdure.ops import text

from . import answering
from .answering import Action
from .arguments import Asked, arguments
from .desk import Desk
from .endpoint import Endpoint, HttpEndpoint
from .hints import quoted
from .outcome import Code, Outcome
from .seeking import Sought, sought, task_sought
from .typed import Unfit
from .waiting import Row, Waiting, busy

__all__ = [
    "CallRequest",
    "WaitOptions",
    "answer",
    "broken_off",
    "call",
    "deadline_of",
    "handle_of",
    "interrupted",
    "known",
    "left_until",
    "resume",
    "say_how_to_come_back",
    "say_how_to_go_on",
    "tools",
]

Questions = Literal["ask", "wait", "leave"]

_AGAIN_WITHIN: Final = 5.0
"""Seconds in which a second Ctrl-C cancels the task."""
_LISTED: Final = 60.0
"""Seconds to list a server's tools in, which the SDK does not bound."""
_MOST_PAGES: Final = 100


@dataclass(frozen=True, slots=True)
class WaitOptions:
    """How to wait.

    `seconds`: of everything together. `questions`: None asks where there is a terminal, else waits. `stop_within`:
    seconds to see a task end that was asked to stop, and before that for the asking itself.
    """

    seconds: float | None = None
    questions: Questions | None = None
    stop_within: float = 10.0


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
    deadline = deadline_of(request.options)
    rows, otherwise = list[Row](), interrupted()
    with desk.stop.guard():
        async with desk.connected(request.server, within=left_until(deadline)) as (client, tasks):
            tool = await _tool(client, request.tool, within=left_until(deadline))
            repeats = honours_keys_of(client, tool)
            if request.key is not None and not repeats:
                raise Unfit(f"--idempotency-key: the server does not say that {tool.name} knows calls again by a key")
            given = arguments(request.words, request.given, tool.input_schema)
            key, begun = request.key or uuid4().hex, time.time()
            otherwise = _unsure(desk, tool.name, key, repeats=repeats)
            again = desk.again(key) if repeats else None
            with desk.stop.guard(), _naming_the_timeout(deadline, again):
                seconds = left_until(deadline)
                async with busy(desk.screen, f"calling {tool.name}"):
                    handle = await tasks.start(client, tool.name, given, idempotency_key=key, timeout=seconds)
                rows.append(Row(handle, begun))
            await _called(desk, rows, request, deadline)
    return [_freeing(desk, each, request.key) for each in known(rows)] or [otherwise]


@contextmanager
def _naming_the_timeout(deadline: float | None, again: str | None) -> Generator[None]:
    """A block in which a call that nobody heard of in time is not said to be one of which nobody ever will."""
    try:
        yield
    except Unsure as error:
        if deadline is None or left_until(deadline):
            raise
        more = "" if again is None else f"; {again} asks again"
        raise Unsure(error.record, f"no answer came within --timeout{more}") from error


def _warn(desk: Desk, handle: TaskHandle, server: Endpoint) -> None:
    """A task that is not on record is told with how to come back to it all the same."""
    if not handle.is_task or handle.is_on_record:
        return
    options = [f"--server {quoted(server.shown)}"] if isinstance(server, HttpEndpoint) else []
    again = desk.hints.command("resume", quoted(handle.id), options=options)
    desk.screen.say(f"The journal can't be written, so keep the id: {again}", "bad")


def _freeing(desk: Desk, outcome: Outcome, key: str | None) -> Outcome:
    """With how to call anew under a key whose task is no more."""
    if key is None or outcome.status != "lost":
        return outcome
    return replace(outcome, words=f"{outcome.words}. {desk.again(key, 'forget')} frees the key for another call")


async def _called(desk: Desk, rows: list[Row], request: CallRequest, deadline: float | None) -> None:
    """Wait for what was called, unless nobody wants to."""
    for row in rows:
        _warn(desk, row.handle, request.server)
        if request.detach and row.handle.is_task:
            row.outcome = row.left("", code=Code.DONE)
            return
        if row.handle.is_task:
            desk.screen.say(f"{text.line(row.handle.tool)}  {text.line(row.handle.id)}")
    await _wait(desk, rows, request.options, deadline)


async def resume(desk: Desk, wanted: str | None, server: Endpoint | None, options: WaitOptions) -> list[Outcome]:
    """Wait for a task that was called before."""
    _somebody_to_ask(desk, options)
    deadline = deadline_of(options)
    task = sought(desk, wanted, server)
    rows, otherwise = list[Row](), interrupted()
    with desk.stop.guard():
        async with desk.connected(task.server, within=left_until(deadline)) as (client, tasks):
            otherwise = broken_off(desk, task.id, "Interrupted before it was found again", is_task=task.is_task)
            with desk.stop.guard(), _naming_the_timeout(deadline, desk.again(task.id)):
                handle = await tasks.resume(client, task.id, timeout=left_until(deadline))
                desk.screen.say(f"{text.line(handle.tool)}  {text.line(handle.id)}".strip())
                rows.append(Row(handle, task.begun_at))
            await _wait(desk, rows, options, deadline)
    return known(rows) or [otherwise]


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
    outcome = interrupted()
    with desk.stop.guard():
        async with desk.connected(task.server) as (client, tasks):
            async with busy(desk.screen, f"looking what {task.id} asks"):
                handle = await handle_of(client, tasks, task)
                seen = await handle.status()
            questions = seen.questions
            if not questions:
                over = f" any more: it is {seen.status}" if seen.is_terminal else ""
                words = f"{handle.id} asks nothing{over}"
                return [Outcome(Code.FAILED, "refused", words, id=handle.id, tool=handle.tool)]
            responses = _said(questions, words, action, question)
            if not responses:
                responses = await _at_the_terminal(desk, client, handle, _asked(questions, question))
            outcome = broken_off(desk, handle.id, "Interrupted while it was answered")
            record = desk.journal.find(task.server.name, handle.id)
            before = [key for key in responses if record and desk.journal.given(record, key) is not None]
            async with busy(desk.screen, f"answering {task.id}"):
                outcome = await _answered(handle, responses, seen.status, before)
    return [outcome]


async def _answered(handle: TaskHandle, responses: Mapping[str, Any], status: str, before: Sequence[str]) -> Outcome:
    """`before`: the questions that were answered from here before, and keep that answer."""
    try:
        taken = await handle.answer(responses)
    except AnswerRefused as error:
        return Outcome(Code.FAILED, "refused", str(error), id=handle.id, tool=handle.tool)
    late = ", ".join(key for key in responses if key not in taken)
    if late:
        words = f"{handle.id} does not ask that any more, and has not taken it: {late}"
        return Outcome(Code.FAILED, "refused", words, id=handle.id, tool=handle.tool)
    kept = f", which is the one that was given before: {', '.join(before)}" if before else ""
    return Outcome(Code.DONE, status, f"{handle.id} has its answer{kept}", id=handle.id, tool=handle.tool)


async def tools(desk: Desk, server: Endpoint, found: list[Tool]) -> list[Outcome]:
    """Put the tools of a server into `found`; nothing else comes of it, unless it is broken off."""
    with desk.stop.guard():
        async with desk.connected(server) as (client, _):
            found += await _tools(client)
        return []
    return [interrupted()]


# -- what they share ---------------------------------------------------------------------------------------------------


async def _wait(desk: Desk, rows: list[Row], options: WaitOptions, deadline: float | None) -> None:
    """Wait, to the end or to a signal; the rows have what came of it."""
    asks = desk.keyboard is not None and options.questions in ("ask", None)
    leaves = options.questions == "leave"
    with desk.stop.guard():
        await Waiting(desk.screen, desk.hints, seconds=left_until(deadline), asks=asks, leaves=leaves).run(rows)
        say_how_to_go_on(desk, rows)
        return
    going_on = say_how_to_come_back(desk, rows)
    if going_on and desk.stop.by_hand and desk.keyboard is not None and await _pressed_again(desk):
        await _stopped(desk, going_on, options.stop_within)


def say_how_to_go_on(desk: Desk, rows: Sequence[Row]) -> None:
    """After a wait that came to its end while tasks go on."""
    for outcome in [row.outcome for row in rows if row.outcome is not None]:
        if outcome.code in {Code.RUNNING, Code.UNKNOWN} and outcome.status not in {"lost", "expired"} and outcome.id:
            desk.screen.say(f"Go on with: {desk.again(outcome.id)}")


def say_how_to_come_back(desk: Desk, rows: Sequence[Row]) -> list[Row]:
    """After a wait that a signal ended; what goes on."""
    going_on = [row for row in rows if row.outcome is None]
    for row in going_on:
        desk.screen.say(f"Detached. The task goes on: {desk.again(row.handle.id)}")
    return going_on


def known(rows: list[Row]) -> list[Outcome]:
    """What came of each, also when everything was broken off: what has no end yet goes on."""
    return [row.outcome or row.left("") for row in rows]


async def _stopped(desk: Desk, rows: list[Row], within: float) -> None:
    """The second Ctrl-C has come."""
    for row in rows:
        task, asked = text.line(row.handle.id), False
        desk.screen.say(f"Asking {task} to stop …")
        with anyio.move_on_after(within):
            try:
                await row.handle.cancel()
                asked = True
            except ClientError as error:
                desk.screen.say(f"{task} can't be asked to stop: {text.line(str(error))}", "bad")
                continue
        desk.screen.say(f"{task} is asked to stop." if asked else f"There is no answer; {task} may go on.")
    # What it asks was told before, or asked.
    await Waiting(desk.screen, desk.hints, seconds=within, tells=False).run(rows)


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


async def handle_of(client: Client, tasks: Tasks, task: Sought) -> TaskHandle:
    """The handle of a task.

    Raises:
        TaskLost: there is none.
    """
    handle = await tasks.resume(client, task.id)
    if not task.is_known:
        # A mistyped id must not stay on record as a task that goes on.
        await handle.status()
    return handle


def _said(
    questions: Mapping[str, Any], words: Sequence[str], action: Action | None, question: str | None
) -> dict[str, ElicitResult]:
    if action is not None:
        key = answering.action_for(questions, question)
        content = answering.accepted(questions, key) if action == "accept" else None
        return {key: ElicitResult(action=action, content=content)}
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
        lines = answering.told(handle.id, questions, desk.hints, several=len(questions) > 1)
        raise Asked(["say what to answer:", *lines])
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


def _unsure(desk: Desk, tool: str, key: str, *, repeats: bool) -> Outcome:
    """`repeats`: whether a second call is known to be the first."""
    what = f"{desk.again(key)} finds out what came of it"
    if not repeats:
        what = f"nobody knows whether it happened. {desk.again(key, 'forget')} strikes it off the list, once you know"
    words = f"Interrupted in the middle of the call: {what}"
    return Outcome(Code.UNKNOWN, "unsure", words, id=key, is_task=False, tool=tool)


def interrupted() -> Outcome:
    """Nothing was begun."""
    return Outcome(Code.UNKNOWN, "unavailable", "Interrupted before anything was called")


def broken_off(desk: Desk, id: str, words: str, *, is_task: bool = True) -> Outcome:
    """Something about a task, which goes on."""
    return Outcome(Code.UNKNOWN, "unavailable", f"{words}: {desk.again(id)}", id=id, is_task=is_task)


def deadline_of(options: WaitOptions) -> float | None:
    """When the wait ends, by the loop's clock."""
    return None if options.seconds is None else anyio.current_time() + options.seconds


def left_until(deadline: float | None) -> float | None:
    """Seconds to there."""
    return None if deadline is None else max(0.0, deadline - anyio.current_time())
