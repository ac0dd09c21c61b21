"""A server that is told to stop hands its tasks over and ends, whatever still runs in it, over HTTP and over stdio."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests import copies
from tests.acceptance.support import CRASH_SERVER, effect, rows, running, store_url
from tests.support import PATIENCE, eventually
from tests.wire.support import Caller, Piped, piped

STDIO: Final = [str(CRASH_SERVER), "--stdio", "--store"]
LEFT: Final = {"deaf": "start", "gated": "start", "parent": "end"}
"""Tools that leave work behind which nobody can stop, and what they have done once it goes on."""
HANDED_OVER: Final = [(None, 0, 0, 1)]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EFFECTS", str(tmp_path / "effects.log"))
    monkeypatch.setenv("GRACE", "100ms")


async def begun(client: Caller, folder: Path, tool: str) -> None:
    """A task whose work goes on until the process ends."""
    task_id = await client.start(tool, {"label": "for ever", "gate": str(folder / "never")})
    await effect(folder, task_id, LEFT.get(tool, "start"))


def is_handed_over(folder: Path, tool: str) -> bool:
    """The next worker is to have it, as the attempt that it was; unless it has ended."""
    if tool == "parent":
        return rows(folder, "SELECT status FROM task") == [("completed",)]
    return rows(folder, "SELECT session, failures, deaths, due_at < 0 FROM run") == HANDED_OVER


async def ended(client: Piped) -> int:
    """The exit status, while the input stays open."""
    async with asyncio.timeout(PATIENCE):
        return await client.child.wait()


@pytest.mark.parametrize("tool", LEFT)
async def test_work_that_can_not_be_stopped_does_not_keep_a_server_from_ending(tool: str, tmp_path: Path) -> None:
    async with running(CRASH_SERVER, tmp_path) as (server, client):
        await begun(client, tmp_path, tool)
        assert await server.end(signal.SIGINT) == 0
    assert is_handed_over(tmp_path, tool)


@pytest.mark.parametrize("tool", LEFT)
async def test_nor_does_it_when_the_input_ends(tool: str, tmp_path: Path) -> None:
    async with piped(*STDIO, store_url(tmp_path)) as client:
        await begun(client, tmp_path, tool)
    assert is_handed_over(tmp_path, tool)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_is_to_a_stdio_server_what_the_end_of_its_input_is(how: signal.Signals, tmp_path: Path) -> None:
    async with piped(*STDIO, store_url(tmp_path)) as client:
        await begun(client, tmp_path, "waiting")
        client.child.send_signal(how)
        assert await ended(client) == 0
    assert is_handed_over(tmp_path, "waiting")
    assert not rows(tmp_path, "SELECT * FROM session")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_an_idle_stdio_server(how: signal.Signals, tmp_path: Path) -> None:
    async with piped(*STDIO, store_url(tmp_path)) as client:
        assert (await client.request("server/discover")).status == 200
        client.child.send_signal(how)
        assert await ended(client) == 0


async def test_who_does_not_want_to_wait_for_the_grace_period_presses_ctrl_c_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRACE", "10m")
    async with copies.talking([sys.executable, *STDIO, store_url(tmp_path)], errors=subprocess.DEVNULL) as child:
        await begun(Piped(child), tmp_path, "waiting")

        def pressed_again() -> bool:
            child.send_signal(signal.SIGINT)
            return child.returncode is not None

        await eventually(pressed_again, "it ends")
        assert child.returncode == -signal.SIGINT
