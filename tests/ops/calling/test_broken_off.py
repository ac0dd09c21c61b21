"""What is said of a command that is broken off: of what was called that it goes on, and never that nothing was."""

import signal
from typing import Any

import anyio
import pytest

from perdure.client import Unsure
from perdure.ops.calling import calls, several
from perdure.ops.calling.calls import WaitOptions
from perdure.ops.calling.desk import Desk
from perdure.ops.calling.endpoint import parse_url
from perdure.ops.calling.outcome import Code
from tests.client.spy import Spy
from tests.ops.calling.commands import Held, call, detached, doing
from tests.ops.calling.shell import statuses
from tests.ops.calling.terminal import Terminal
from tests.support import PATIENCE, eventually
from tests.wire.support import Stage
from tests.wire.tools import Tools


async def test_a_third_signal_ends_everything_and_the_task_is_not_forgotten(
    scene: Stage, seat: tuple[Desk, Terminal], tools: Tools, spy: Spy, held: Held
) -> None:
    desk, terminal = seat
    held.methods.add("tasks/cancel")
    async with doing(call(scene, desk, "gated")) as done:
        await terminal.until("working")
        desk.stop.take(signal.SIGINT)
        await terminal.until("Ctrl-C again")
        desk.stop.take(signal.SIGINT)
        await eventually(lambda: spy.open["tasks/cancel"] > 0, "it is asked to stop")
        desk.stop.take(signal.SIGINT)
    ((task, _),) = statuses(scene)
    assert [(each.code, each.id) for each in done.result()] == [(Code.RUNNING, task)]
    held.freed.set()
    tools.gate.set()


async def test_a_server_that_does_not_answer_holds_up_nobody_who_wants_his_task_stopped(
    scene: Stage, seat: tuple[Desk, Terminal], tools: Tools, held: Held
) -> None:
    desk, terminal = seat
    held.methods.add("tasks/cancel")
    async with doing(call(scene, desk, "gated", options=WaitOptions(stop_within=0.3))) as done:
        await terminal.until("working")
        desk.stop.take(signal.SIGINT)
        await terminal.until("Ctrl-C again")
        desk.stop.take(signal.SIGINT)
        await terminal.until("Asking tsk_")
        await terminal.until("There is no answer; tsk_")
    assert [each.code for each in done.result()] == [Code.RUNNING]
    held.freed.set()
    tools.gate.set()


async def test_a_question_is_not_told_again_to_who_stops_its_task(scene: Stage, seat: tuple[Desk, Terminal]) -> None:
    desk, terminal = seat
    async with doing(call(scene, desk, "ask")) as done:
        await terminal.until("Ok (yes or no): ")
        desk.stop.take(signal.SIGINT)
        await terminal.until("Ctrl-C again")
        desk.stop.take(signal.SIGINT)
    assert [each.code for each in done.result()] == [Code.CANCELLED]
    await terminal.until("  cancelled")
    assert terminal.text.count("All right?") == 1


async def test_of_a_call_that_must_not_be_made_again_nobody_claims_to_find_out(
    scene: Stage, seat: tuple[Desk, Terminal], spy: Spy, held: Held
) -> None:
    @scene.mcp.tool()
    def charge() -> str:
        return "charged"

    desk, terminal = seat
    held.methods.add("tools/call")
    async with doing(call(scene, desk, "charge")) as done:
        await eventually(lambda: spy.open["tools/call"] > 0, "it is called")
        await terminal.until("0 s  calling charge")
        desk.stop.take(signal.SIGINT)
    held.freed.set()
    (outcome,) = done.result()
    assert (outcome.code, outcome.status) == (Code.UNKNOWN, "unsure")
    assert "finds out" not in outcome.words
    assert f"perdure forget {outcome.id} strikes it off the list" in outcome.words
    await eventually(lambda: "calling" not in terminal.text, "the live line is gone")


async def test_a_call_that_was_not_answered_in_time_is_told_with_the_bound_that_it_had(
    scene: Stage, seat: tuple[Desk, Terminal], spy: Spy, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[float] = []

    def left(_: float | None) -> float:
        """Its time begins to run with the call: to connect and to list the tools takes as long as it does."""
        if not spy.came["tools/list"]:
            return PATIENCE
        ends.append(anyio.current_time() + 0.3)
        return max(0.0, ends[0] - anyio.current_time())

    monkeypatch.setattr(calls, "left_until", left)
    held.methods.add("tools/call")
    with pytest.raises(Unsure, match=r"no answer came within --timeout; perdure resume .* asks again"):
        await call(scene, seat[0], "hello", words=("name=Ada",), options=WaitOptions(seconds=PATIENCE))
    held.freed.set()


async def test_sigterm_after_ctrl_c_cancels_nothing(scene: Stage, seat: tuple[Desk, Terminal], tools: Tools) -> None:
    desk, terminal = seat
    async with doing(call(scene, desk, "gated")) as done:
        await terminal.until("working")
        desk.stop.take(signal.SIGINT)
        await terminal.until("Ctrl-C again")
        desk.stop.take(signal.SIGTERM)
    assert [each.code for each in done.result()] == [Code.RUNNING]
    assert tools.ended == []
    tools.gate.set()


async def test_an_answer_that_is_broken_off_is_not_said_to_be_nothing(
    scene: Stage, seat: tuple[Desk, Terminal], spy: Spy, held: Held
) -> None:
    desk, _ = seat
    task = await detached(scene, desk, "ask")
    await eventually(lambda: (task, "input_required") in statuses(scene), "it asks")
    held.methods.add("tasks/update")
    async with doing(calls.answer(desk, task, ["ok=yes"], action=None, question=None, server=None)) as done:
        await eventually(lambda: spy.open["tasks/update"] > 0, "it is answered")
        desk.stop.take(signal.SIGINT)
    (outcome,) = done.result()
    assert (outcome.code, outcome.id) == (Code.UNKNOWN, task)
    assert outcome.words.startswith("Interrupted while it was answered: perdure resume ")
    held.freed.set()


async def test_of_several_that_are_cancelled_it_is_said_which_were_asked_before_ctrl_c(
    scene: Stage, seat: tuple[Desk, Terminal], tools: Tools, spy: Spy, held: Held
) -> None:
    desk, _ = seat
    first, *others = [await detached(scene, desk, "gated") for _ in range(3)]

    def hold_the_second(_: dict[str, Any]) -> None:
        if spy.came["tasks/cancel"] == 2:
            held.methods.add("tasks/cancel")

    spy.refuse["tasks/cancel"] = hold_the_second
    async with doing(several.cancel(desk, [first, *others], None)) as done:
        await eventually(lambda: spy.came["tasks/cancel"] == 2, "the second is asked to stop")
        desk.stop.take(signal.SIGINT)
    assert [(each.id, each.code, each.words.partition(" tsk_")[0]) for each in done.result()] == [
        (first, Code.DONE, f"{first} is asked to stop"),
        (others[0], Code.UNKNOWN, "Interrupted while"),
        (others[1], Code.UNKNOWN, "Interrupted before"),
    ]
    held.freed.set()
    tools.gate.set()


async def test_a_list_of_tools_that_is_broken_off_is_not_an_empty_one(
    scene: Stage, seat: tuple[Desk, Terminal], spy: Spy, held: Held
) -> None:
    desk, _ = seat
    held.methods.add("tools/list")
    async with doing(calls.tools(desk, parse_url(scene.client.url), [])) as done:
        await eventually(lambda: spy.open["tools/list"] > 0, "they are listed")
        desk.stop.take(signal.SIGINT)
    assert [each.code for each in done.result()] == [Code.UNKNOWN]
    held.freed.set()
