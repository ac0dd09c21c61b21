"""The commands as a person has them: a terminal, a live line, forms and Ctrl-C. Real programs, real terminals."""

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

from perdure import Tasks
from tests.client.spy import Spy, always, at_first
from tests.ops.calling import letters
from tests.ops.calling.terminal import CTRL_C, PERDURE, Terminal, at_a_terminal, piped
from tests.support import eventually
from tests.wire.support import Stage, stage
from tests.wire.tools import Tools

Desk = Callable[..., AbstractAsyncContextManager[Terminal]]


@pytest.fixture
def tools() -> Tools:
    return Tools()


@pytest.fixture
def spy() -> Spy:
    return Spy()


class Held:
    """A middleware that holds requests of these methods until they are `freed`."""

    def __init__(self) -> None:
        self.methods: set[str] = set()
        self.freed = asyncio.Event()

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.method in self.methods:
            await self.freed.wait()
        return await call_next(ctx)


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
async def scene(tmp_path: Path, tools: Tools, spy: Spy, held: Held) -> AsyncGenerator[Stage]:
    def declare(tasks: Tasks) -> None:
        tools.declare(tasks)
        letters.declare(tasks)

    async with stage(tmp_path, declare, server={"middleware": [spy, held]}) as up:
        yield up


@pytest.fixture
def desk(scene: Stage, tmp_path: Path) -> Desk:
    def sat_at(*words: str, **env: str) -> AbstractAsyncContextManager[Terminal]:
        place = [scene.client.url if word == "URL" else word for word in words]
        return at_a_terminal(*PERDURE, *place, env={"XDG_STATE_HOME": str(tmp_path), **env})

    return sat_at


async def run(tmp_path: Path, *words: str, code: int = 0) -> str:
    output, _ = await piped(*PERDURE, *words, env={"XDG_STATE_HOME": str(tmp_path)}, code=code)
    return output


async def test_a_question_is_a_form_and_the_result_comes_after_it(desk: Desk) -> None:
    async with desk("call", "URL", "ask") as terminal:
        await terminal.answers("Ok (yes or no): ", "perhaps", "yes")
        screen = await terminal.ends()
        lines = screen.splitlines()
        assert lines[0].startswith("ask  tsk_")
        assert "? All right?" in lines
        assert lines[-2].endswith("completed")
        assert lines[-1] == "accept True"
        assert terminal.screen.colours, "there is colour on a terminal"


async def test_what_is_asked_before_there_is_a_task_is_a_form_too(desk: Desk) -> None:
    async with desk("call", "URL", "send_letters") as terminal:
        await terminal.answers("? To whom?\n", "Ada")
        assert (await terminal.ends()).endswith("sent to Ada\n")


async def test_two_questions_are_asked_one_after_the_other(desk: Desk) -> None:
    async with desk("call", "URL", "ask_two") as terminal:
        await terminal.until("? ")
        both = {"? All right?": "/decline", "? Who?": "/cancel"}
        first = "? All right?" if "? All right?" in terminal.text else "? Who?"
        terminal.type(f"{both.pop(first)}\n")
        ((second, word),) = both.items()
        await terminal.until(second)
        terminal.type(f"{word}\n")
        assert "form=decline, entry=cancel" in await terminal.ends()


@pytest.mark.parametrize(
    ("words", "env"), [((), {"NO_COLOR": "1"}), (("--no-color",), {}), ((), {"TERM": "dumb"}), ((), {"NO_COLOR": "0"})]
)
async def test_there_is_no_colour_when_asked(desk: Desk, words: tuple[str, ...], env: dict[str, str]) -> None:
    async with desk("call", "URL", "hello", "name=Ada", *words, **env) as terminal:
        assert (await terminal.ends()).endswith("Hello, Ada!\n")
        assert terminal.screen.colours == []


async def test_the_live_line_tells_of_listening_and_is_gone_in_the_end(desk: Desk, tools: Tools) -> None:
    async with desk("call", "URL", "gated") as terminal:
        await terminal.until("working, listening")
        tools.gate.set()
        assert "listening" not in await terminal.ends()


async def test_the_live_line_fits_a_narrow_terminal(scene: Stage, tools: Tools, tmp_path: Path) -> None:
    """One that wraps could not be painted over."""
    words, env = ("call", scene.client.url, "gated"), {"XDG_STATE_HOME": str(tmp_path)}
    async with at_a_terminal(*PERDURE, *words, env=env, columns=20) as terminal:
        await terminal.until("  working, l…")
        tools.gate.set()
        assert "…" not in await terminal.ends()


async def test_the_live_line_tells_of_the_next_poll(desk: Desk, tools: Tools, spy: Spy) -> None:
    spy.refuse["subscriptions/listen"] = always(-32601, "Method not found")
    async with desk("call", "URL", "gated") as terminal:
        await terminal.until("working, next poll in ")
        tools.gate.set()
        await terminal.ends()


@pytest.mark.slow
async def test_ctrl_c_leaves_the_task_alone_and_says_how_to_come_back(desk: Desk, tools: Tools, tmp_path: Path) -> None:
    async with desk("call", "URL", "gated") as terminal:
        await asyncio.wait_for(tools.entered.wait(), 30)
        await terminal.until("working")
        terminal.type(CTRL_C)
        await terminal.until("Ctrl-C again within 5 s cancels it; Enter leaves at once.")
        terminal.type("\n")
        screen = await terminal.ends(4)
    (hint,) = [line for line in screen.splitlines() if "Detached. The task goes on: perdure resume tsk_" in line]
    assert tools.ended == []
    tools.gate.set()
    assert await run(tmp_path, *hint.partition("perdure ")[2].split()) == "through\n"
    assert tools.ran == ["gated"]


async def test_ctrl_c_twice_cancels_the_task(desk: Desk, tools: Tools) -> None:
    async with desk("call", "URL", "gated") as terminal:
        await asyncio.wait_for(tools.entered.wait(), 30)
        await terminal.until("working")
        terminal.type(CTRL_C)
        await terminal.until("Ctrl-C again")
        terminal.type(CTRL_C)
        await terminal.until("is asked to stop.")
        assert "The task was cancelled" in await terminal.ends(3)
    assert tools.ended == ["cancelled"]


async def test_ctrl_c_in_the_middle_of_a_form_leaves_the_question_open(desk: Desk, tools: Tools) -> None:
    async with desk("call", "URL", "ask") as terminal:
        await terminal.until("Ok (yes or no): ")
        terminal.type(f"ye{CTRL_C}")
        await terminal.until("Ctrl-C again")
        terminal.type("\n")
        await terminal.ends(4)
    async with desk("resume") as terminal:
        await terminal.answers("Ok (yes or no): ", "yes")
        assert (await terminal.ends()).endswith("accept True\n")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_leaves_the_task_alone_and_ends_at_once(desk: Desk, tools: Tools, how: signal.Signals) -> None:
    async with desk("call", "URL", "gated") as terminal:
        await terminal.until("working")
        terminal.kill(how)
        assert "Detached." in await terminal.ends(4)
    assert tools.ended == []
    tools.gate.set()


async def test_a_terminal_that_is_closed_answers_no_question(desk: Desk) -> None:
    async with desk("call", "URL", "ask") as terminal:
        await terminal.until("Ok (yes or no): ")
        terminal.hang_up()
        await terminal.ends(4)
    async with desk("resume") as terminal:
        await terminal.answers("Ok (yes or no): ", "yes")
        assert (await terminal.ends()).endswith("accept True\n")


async def test_a_call_that_was_killed_is_resumed_and_not_made_again(desk: Desk, tools: Tools) -> None:
    async with desk("call", "URL", "ask") as terminal:
        await terminal.until("Ok (yes or no): ")
        terminal.kill(signal.SIGKILL)
        await terminal.ends(-signal.SIGKILL)
    async with desk("resume") as terminal:
        await terminal.answers("Ok (yes or no): ", "no")
        assert (await terminal.ends()).endswith("accept False\n")
    assert tools.ran == ["ask", "ask"], "begun once, and run on after the answer"


async def test_a_call_that_is_broken_off_before_its_answer_can_be_resumed(desk: Desk, spy: Spy, held: Held) -> None:
    held.methods.add("tools/call")
    async with desk("call", "URL", "hello", "name=Ada") as terminal:
        await eventually(lambda: spy.open["tools/call"] > 0, "it is called")
        terminal.type(CTRL_C)
        screen = await terminal.ends(5)
    held.freed.set()
    assert "Interrupted in the middle of the call: perdure resume " in screen
    async with desk("resume") as terminal:
        assert (await terminal.ends()).endswith("Hello, Ada!\n")


async def test_an_answer_that_the_server_refuses_is_asked_for_again(desk: Desk, spy: Spy) -> None:
    spy.refuse["tasks/update"] = at_first(1, -32602, "\x1b[2Jnot like that")
    async with desk("call", "URL", "ask") as terminal:
        await terminal.answers("Ok (yes or no): ", "no")
        await terminal.until("was refused:  [2Jnot like that")
        await terminal.answers("not like that\n? All right?", "yes")
        assert (await terminal.ends()).endswith("accept True\n")


async def test_a_second_ctrl_c_does_not_cancel_what_is_only_watched(desk: Desk, tools: Tools) -> None:
    async with desk("call", "URL", "gated", "--detach") as terminal:
        await terminal.ends()
    async with desk("watch") as terminal:
        await terminal.until("working")
        terminal.type(CTRL_C)
        assert "Ctrl-C again" not in await terminal.ends(4)
    assert tools.ended == []
    tools.gate.set()


async def test_a_question_that_is_answered_elsewhere_goes_away(desk: Desk, tmp_path: Path) -> None:
    async with desk("call", "URL", "ask") as terminal:
        await terminal.until("Ok (yes or no): ")
        task = terminal.text.splitlines()[0].split()[1]
        await run(tmp_path, "answer", task, "ok=yes")
        assert (await terminal.ends()).endswith("accept True\n")


async def test_a_question_is_answered_at_another_terminal(scene: Stage, desk: Desk, tmp_path: Path) -> None:
    task = (await run(tmp_path, "call", scene.client.url, "ask", "--detach")).strip()
    async with desk("answer", task) as terminal:
        await terminal.answers("Ok (yes or no): ", "yes")
        assert "has its answer" in await terminal.ends()
    assert await run(tmp_path, "resume", task) == "accept True\n"


@pytest.mark.slow
async def test_several_are_watched_at_once(scene: Stage, desk: Desk, tools: Tools, tmp_path: Path) -> None:
    ids = [(await run(tmp_path, "call", scene.client.url, "gated", "--detach")).strip() for _ in range(2)]
    async with desk("watch") as terminal:
        await eventually(lambda: terminal.text.count("working, listening") == 2, "both have a live line")
        tools.gate.set()
        screen = await terminal.ends()
    for task in ids:
        assert [line.split()[-1] for line in screen.splitlines() if line.startswith(task)] == ["working", "completed"]
