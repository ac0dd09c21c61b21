"""Signals as a command counts them, in the order that a scheduler would hardly bring about."""

import signal

import anyio
import pytest

from perdure.ops.calling.stopping import Stop
from tests.support import PATIENCE


def stopped(*signals: signal.Signals) -> Stop:
    """After all of these came at once, before what the first one ended went on."""
    stop = Stop()
    with stop.guard():
        for each in signals:
            stop.take(each)
    return stop


@pytest.mark.parametrize(("second", "by_hand"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
async def test_a_second_signal_that_came_before_anybody_waited_for_it_is_not_lost(
    second: signal.Signals, by_hand: bool
) -> None:
    with anyio.fail_after(PATIENCE):
        assert await stopped(signal.SIGINT, second).another() is by_hand


async def test_the_second_signal_is_waited_for() -> None:
    stop, heard = stopped(signal.SIGINT), list[bool]()

    async def wait() -> None:
        heard.append(await stop.another())

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        assert heard == []
        stop.take(signal.SIGINT)
    assert heard == [True]
