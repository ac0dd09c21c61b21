"""The commands as a person has them: a terminal, a live line, forms and Ctrl-C.

Where signals and the end of a program matter, it is a program of its own. Elsewhere the command runs in this process,
at a terminal that is as real.
"""

import asyncio
import os
import pty
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from perdure.client import Unavailable
from perdure.ops.calling import calls, several
from perdure.ops.calling import desk as desks
from perdure.ops.calling.calls import WaitOptions
from perdure.ops.calling.desk import Desk, Settings
from perdure.ops.calling.outcome import Code, Outcome, spoken
from tests.client.spy import Spy, always, at_first
from tests.ops.calling.commands import Held, call, detached, doing
from tests.ops.calling.shell import statuses
from tests.ops.calling.terminal import CTRL_C, PERDURE, Program, Terminal, at_a_terminal, in_front
from tests.support import PATIENCE, eventually
from tests.wire.support import Stage
from tests.wire.tools import Tools

Start = Callable[..., AbstractAsyncContextManager[Program]]


@pytest.fixture
def start(scene: Stage, tmp_path: Path) -> Start:
    def started(*words: str, **env: str) -> AbstractAsyncContextManager[Program]:
        place = [scene.client.url if word == "URL" else word for word in words]
        return at_a_terminal(*PERDURE, *place, env={"XDG_STATE_HOME": str(tmp_path), **env})

    return started


def resume(desk: Desk) -> Coroutine[Any, Any, Sequence[Outcome]]:
    return calls.resume(desk, None, None, WaitOptions())


def said(task: asyncio.Task[Sequence[Outcome]]) -> str:
    (outcome,) = task.result()
    assert outcome.result is not None, outcome
    return "\n".join(spoken(outcome.result))


# -- a program at its terminal -----------------------------------------------------------------------------------------


async def test_a_question_is_a_form_and_the_result_comes_after_it(start: Start) -> None:
    async with start("call", "URL", "ask") as terminal:
        await terminal.answers("Ok (yes or no): ", "perhaps", "yes")
        screen = await terminal.ends()
        lines = screen.splitlines()
        assert lines[0].startswith("ask  tsk_")
        assert "? All right?" in lines
        assert lines[-2].endswith("completed")
        assert lines[-1] == "accept True"
        assert terminal.screen.colours, "there is colour on a terminal"


@pytest.mark.slow
async def test_ctrl_c_leaves_the_task_alone_and_says_how_to_come_back(
    start: Start, seat: tuple[Desk, Terminal], tools: Tools
) -> None:
    async with start("call", "URL", "gated") as terminal:
        await asyncio.wait_for(tools.entered.wait(), PATIENCE)
        await terminal.until("working")
        terminal.type(CTRL_C)
        await terminal.until("Ctrl-C again within 5 s cancels it; Enter leaves at once.")
        terminal.type("\n")
        screen = await terminal.ends(4)
    (hint,) = [line for line in screen.splitlines() if "Detached. The task goes on: perdure resume tsk_" in line]
    assert tools.ended == []
    tools.gate.set()
    async with doing(calls.resume(seat[0], hint.split()[-1], None, WaitOptions())) as done:
        pass
    assert said(done) == "through"
    assert tools.ran == ["gated"]


async def test_ctrl_c_twice_cancels_the_task(start: Start, tools: Tools) -> None:
    async with start("call", "URL", "gated") as terminal:
        await asyncio.wait_for(tools.entered.wait(), PATIENCE)
        await terminal.until("working")
        terminal.type(CTRL_C)
        await terminal.until("Ctrl-C again")
        terminal.type(CTRL_C)
        await terminal.until("is asked to stop.")
        assert "The task was cancelled" in await terminal.ends(3)
    assert tools.ended == ["cancelled"]


async def test_sigterm_leaves_the_task_alone_and_ends_at_once(start: Start, tools: Tools) -> None:
    async with start("call", "URL", "gated") as terminal:
        await terminal.until("working")
        terminal.kill(signal.SIGTERM)
        assert "Detached." in await terminal.ends(4)
    assert tools.ended == []
    tools.gate.set()


def ctrl_c(terminal: Program) -> None:
    terminal.type(f"ye{CTRL_C}")


def killed(terminal: Program) -> None:
    terminal.kill(signal.SIGKILL)


@pytest.mark.parametrize(
    ("leave", "code"),
    [(ctrl_c, 4), (Program.hang_up, 4), (killed, -signal.SIGKILL)],
    ids=["Ctrl-C", "SIGHUP", "SIGKILL"],
)
async def test_whoever_leaves_in_the_middle_of_a_form_is_asked_again_and_nothing_is_called_again(
    start: Start, seat: tuple[Desk, Terminal], tools: Tools, leave: Callable[[Program], None], code: int
) -> None:
    async with start("call", "URL", "ask") as program:
        await program.until("Ok (yes or no): ")
        leave(program)
        if leave is ctrl_c:
            await program.until("Ctrl-C again")
            program.type("\n")
        await program.ends(code)
    desk, terminal = seat
    async with doing(resume(desk)) as done:
        await terminal.answers("Ok (yes or no): ", "no")
    assert said(done) == "accept False"
    assert tools.ran == ["ask", "ask"], "begun once, and run on after the answer"


async def test_a_call_that_is_broken_off_before_its_answer_can_be_resumed(
    start: Start, seat: tuple[Desk, Terminal], spy: Spy, held: Held
) -> None:
    held.methods.add("tools/call")
    async with start("call", "URL", "hello", "name=Ada") as program:
        await eventually(lambda: spy.open["tools/call"] > 0, "it is called")
        program.type(CTRL_C)
        screen = await program.ends(5)
    held.freed.set()
    assert "Interrupted in the middle of the call: perdure resume " in screen
    async with doing(resume(seat[0])) as done:
        pass
    assert said(done) == "Hello, Ada!"


async def test_a_question_that_is_answered_elsewhere_goes_away(start: Start, seat: tuple[Desk, Terminal]) -> None:
    async with start("call", "URL", "ask") as program:
        await program.until("Ok (yes or no): ")
        task = program.text.splitlines()[0].split()[1]
        answered = calls.answer(seat[0], task, ["ok=yes"], action=None, question=None, server=None)
        async with doing(answered) as done:
            pass
        assert [each.code for each in done.result()] == [Code.DONE]
        assert (await program.ends()).endswith("accept True\n")


# -- a command at a terminal -------------------------------------------------------------------------------------------


async def test_what_is_asked_before_there_is_a_task_is_a_form_too(scene: Stage, seat: tuple[Desk, Terminal]) -> None:
    desk, terminal = seat
    async with doing(call(scene, desk, "send_letters")) as done:
        await terminal.answers("? To whom?\n", "Ada")
    assert said(done) == "sent to Ada"


async def test_a_server_that_has_no_room_for_an_answer_is_waited_for_and_not_said_to_have_been_asked_nothing(
    scene: Stage, seat: tuple[Desk, Terminal], spy: Spy
) -> None:
    full = at_first(2, -32000, "full", {"retryAfterMs": 10})
    spy.refuse["tools/call"] = lambda params: full(params) if "inputResponses" in params else None
    desk, terminal = seat
    async with doing(call(scene, desk, "send_letters")) as done:
        await terminal.answers("? To whom?\n", "Ada")
    assert said(done) == "sent to Ada"
    assert (terminal.text.count("? To whom?"), spy.came["tools/call"]) == (1, 4)


async def test_two_questions_are_asked_one_after_the_other(scene: Stage, seat: tuple[Desk, Terminal]) -> None:
    desk, terminal = seat
    async with doing(call(scene, desk, "ask_two")) as done:
        await terminal.until("? ")
        both = {"? All right?": "/decline", "? Who?": "/cancel"}
        first = "? All right?" if "? All right?" in terminal.text else "? Who?"
        terminal.type(f"{both.pop(first)}\n")
        ((second, word),) = both.items()
        await terminal.until(second)
        terminal.type(f"{word}\n")
    assert said(done) == "form=decline, entry=cancel"


async def test_of_several_questions_the_one_that_is_named_is_asked(scene: Stage, seat: tuple[Desk, Terminal]) -> None:
    desk, terminal = seat
    (left,) = await call(scene, desk, "ask_two", options=WaitOptions(questions="leave"))
    assert left.id is not None
    async with doing(calls.answer(desk, left.id, [], action=None, question="entry", server=None)) as done:
        await terminal.answers("Name (at most 10 characters): ", "Ada")
    assert [each.code for each in done.result()] == [Code.DONE]
    assert terminal.text.count("All right?") == 1, "when it was left, and not now"


@pytest.mark.parametrize(
    ("env", "no_color", "coloured"),
    [
        ({}, False, True),
        ({}, True, False),
        ({"NO_COLOR": "1"}, False, False),
        ({"NO_COLOR": "0"}, False, False),
        ({"TERM": "dumb"}, False, False),
    ],
)
def test_there_is_no_colour_when_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, env: dict[str, str], no_color: bool, coloured: bool
) -> None:
    for name, value in {"NO_COLOR": "", "TERM": "xterm", "PERDURE_TOKEN": "", **env}.items():
        monkeypatch.setenv(name, value)

    async def work(desk: Desk) -> Sequence[Outcome]:
        desk.screen.say("completed", "good")
        return [Outcome(Code.DONE, "completed")]

    master, slave = pty.openpty()
    with os.fdopen(master, "rb") as terminal, os.fdopen(slave, "w") as err, monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", err)
        with pytest.raises(SystemExit):
            desks.run(Settings(str(tmp_path / "j.db"), no_color=no_color), work)
        seen = os.read(terminal.fileno(), 100)
    assert b"completed" in seen
    assert (b"\x1b" in seen) is coloured


async def test_the_live_line_tells_of_listening_and_is_gone_in_the_end(
    scene: Stage, seat: tuple[Desk, Terminal], tools: Tools
) -> None:
    desk, terminal = seat
    async with doing(call(scene, desk, "gated")):
        await terminal.until("working, listening")
        tools.gate.set()
    assert "listening" not in terminal.text


async def test_the_live_line_fits_a_narrow_terminal(scene: Stage, tmp_path: Path, tools: Tools) -> None:
    """One that wraps could not be painted over."""
    async with in_front(tmp_path, columns=20) as (desk, terminal), doing(call(scene, desk, "gated")):
        await terminal.until("  working, l…")
        tools.gate.set()
        await eventually(lambda: "…" not in terminal.text, "it is gone")


async def test_the_live_line_tells_of_the_next_poll(
    scene: Stage, seat: tuple[Desk, Terminal], tools: Tools, spy: Spy
) -> None:
    spy.refuse["subscriptions/listen"] = always(-32601, "Method not found")
    desk, terminal = seat
    async with doing(call(scene, desk, "gated")):
        await terminal.until("working, next poll in ")
        tools.gate.set()


async def test_a_task_that_is_not_on_record_is_told_with_how_to_come_back_to_it(
    scene: Stage, seat: tuple[Desk, Terminal], spy: Spy
) -> None:
    desk, terminal = seat

    def full(answer: dict[str, Any]) -> dict[str, Any]:
        """The disk is, from now on."""
        vars(desk.journal)["_db"].execute("PRAGMA query_only = ON")
        return answer

    spy.change["tools/call"] = full
    task = await detached(scene, desk, "ask")
    again = f"perdure resume {task} --server {scene.client.url}"
    await terminal.until(f"The journal can't be written, so keep the id: {again}")


async def test_a_server_that_goes_away_during_a_wait_is_mentioned(
    scene: Stage, seat: tuple[Desk, Terminal], tools: Tools, spy: Spy
) -> None:
    spy.refuse["subscriptions/listen"] = always(-32601, "Method not found")
    spy.refuse["tasks/get"] = always(-32000, "away")
    desk, terminal = seat
    async with doing(call(scene, desk, "gated")):
        await terminal.until("The server does not answer: away; asked again")
        await terminal.until("no answer, next poll in ")
        del spy.refuse["tasks/get"]
        await terminal.until("The server answers again")
        tools.gate.set()
    tools.gate.clear()
    spy.refuse["tasks/get"] = always(-32000, "away")
    (outcome,) = await call(scene, desk, "gated", options=WaitOptions(seconds=3.0))
    assert outcome.words == "There is no result yet; the task goes on. The server does not answer: away"


async def test_whoever_answers_or_cancels_sees_that_it_takes_its_time_and_hears_why_it_came_to_nothing(
    scene: Stage, seat: tuple[Desk, Terminal], spy: Spy, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, terminal = seat
    task = await detached(scene, desk, "ask")
    monkeypatch.setattr("perdure.client.handle._PATIENCE", 2.0)
    spy.refuse["tasks/get"] = always(-32000, "away")
    answering = calls.answer(desk, task, ["ok=yes"], action=None, question=None, server=None)
    for doing_it, told in (
        (answering, f"looking what {task} asks"),
        (several.cancel(desk, [task], None), f"asking {task} to stop"),
    ):
        done = asyncio.create_task(unheard(doing_it))
        await terminal.until(told)
        assert await done == "The server did not answer in time (away); the task goes on"


async def unheard(doing_it: Coroutine[Any, Any, Sequence[Outcome]]) -> str | None:
    try:
        (outcome,) = await doing_it
    except Unavailable as error:
        return str(error)
    return outcome.words


async def test_an_answer_that_the_server_refuses_is_asked_for_again(
    scene: Stage, seat: tuple[Desk, Terminal], spy: Spy
) -> None:
    spy.refuse["tasks/update"] = at_first(1, -32602, "\x1b[2Jnot like that")
    desk, terminal = seat
    async with doing(call(scene, desk, "ask")) as done:
        await terminal.answers("Ok (yes or no): ", "no")
        await terminal.until("was refused:  [2Jnot like that")
        await terminal.answers("not like that\n? All right?", "yes")
    assert said(done) == "accept True"


async def test_a_refused_answer_gives_nobody_more_time(scene: Stage, seat: tuple[Desk, Terminal], spy: Spy) -> None:
    spy.refuse["tasks/update"] = always(-32602, "not like that")
    desk, terminal = seat
    asked = 0

    def asks_again() -> bool:
        return done.done() or terminal.text.count("yes or no): ") > asked

    async with doing(call(scene, desk, "ask", options=WaitOptions(seconds=4.0))) as done:
        while not done.done() and asked < 20:
            await eventually(asks_again, "it asks")
            asked += 1
            await asyncio.sleep(0.3)  # as long as a person takes
            terminal.type("yes\n")
    assert [each.status for each in done.result()] == ["input_required"]
    assert asked < 20, "it would have gone on for ever"


async def test_a_second_ctrl_c_does_not_cancel_what_is_only_watched(
    scene: Stage, seat: tuple[Desk, Terminal], tools: Tools
) -> None:
    desk, terminal = seat
    await detached(scene, desk, "gated")
    async with doing(several.watch(desk, [], WaitOptions())) as done:
        await terminal.until("working")
        desk.stop.take(signal.SIGINT)
    assert [each.code for each in done.result()] == [Code.RUNNING]
    assert "Ctrl-C again" not in terminal.text
    assert tools.ended == []
    tools.gate.set()


async def test_a_question_is_answered_at_another_terminal(scene: Stage, seat: tuple[Desk, Terminal]) -> None:
    desk, terminal = seat
    task = await detached(scene, desk, "ask")
    await eventually(lambda: (task, "input_required") in statuses(scene), "it asks")
    async with doing(calls.answer(desk, task, [], action=None, question=None, server=None)) as done:
        await terminal.answers("Ok (yes or no): ", "yes")
    assert [each.words for each in done.result()] == [f"{task} has its answer"]
    async with doing(resume(desk)) as done:
        pass
    assert said(done) == "accept True"


async def test_several_are_watched_at_once(scene: Stage, seat: tuple[Desk, Terminal], tools: Tools) -> None:
    desk, terminal = seat
    ids = [await detached(scene, desk, "gated") for _ in range(2)]
    async with doing(several.watch(desk, [], WaitOptions())):
        await eventually(lambda: terminal.text.count("working, listening") == 2, "both have a live line")
        tools.gate.set()
    screen = await terminal.drained()
    for task in ids:
        assert [line.split()[-1] for line in screen.splitlines() if line.startswith(task)] == ["working", "completed"]
