"""What the pages on listening and on clients of 2025-11-25 say is what happens: their clients, and what is sent.

Against real servers, which are stopped and started again under clients that have to outlive that. The clients that
are not today's Python have environments of their own, which the first test that needs one makes.
"""

import asyncio
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests import npm
from tests.acceptance.support import REPORT_SERVER, attended, running, start
from tests.clients import printed, started
from tests.interop.test_typescript import CLIENT, FOLDER
from tests.test_readme import MESSAGE, PASSING, ROOT
from tests.wire import old_sdk
from tests.wire.envelopes import EVERYTHING, NOTHING, SERVER_INFO, envelope
from tests.wire.listening import listen_request, listening, refused

LISTENING: Final = ROOT / "docs/howto/listening.md"
LEGACY: Final = ROOT / "docs/howto/legacy.md"
NOBODYS: Final = f"tsk_{'a' * 32}"
MANY: Final = [f"tsk_{number:a>32b}".replace("0", "b").replace("1", "c") for number in range(1001)]

Command = Callable[[int, Path], list[str | Path]]
"""How a client of the server on a port is started; the folder is for what it needs."""


def following(port: int, _: Path) -> list[str | Path]:
    return [sys.executable, "-u", ROOT / "examples/following.py", "--port", str(port)]


def with_the_sdk(port: int, _: Path) -> list[str | Path]:
    return [sys.executable, "-u", ROOT / "examples/listening_with_the_sdk.py", "--port", str(port)]


def in_typescript(port: int, folder: Path) -> list[str | Path]:
    """Its package is looked for beside it, as it is for a reader who copied it."""
    modules = npm.installed(FOLDER, CLIENT)
    script = folder / "listening.mjs"
    script.write_text((ROOT / "examples/listening.mjs").read_text("utf-8"), "utf-8")
    (folder / "node_modules").symlink_to(modules)
    return [npm.node_of(modules), script, f"http://127.0.0.1:{port}/mcp"]


LISTENERS: Final = [
    pytest.param(following, id="following"),
    pytest.param(with_the_sdk, id="python"),
    pytest.param(in_typescript, id="typescript", marks=pytest.mark.timeout(600)),  # once, packages are fetched
]


def prints(page: Path) -> list[str]:
    """The lines of the block below the word "prints"."""
    [block] = re.findall(r"prints\n\n```\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    return block.splitlines()


# -- clients that listen -----------------------------------------------------------------------------------------------


async def test_who_listens_hears_what_the_page_shows(tmp_path: Path) -> None:
    """States that follow each other closely may come as one, and the page says so."""
    async with running(REPORT_SERVER, tmp_path) as (server, _):
        heard = (await printed(*following(server.port, tmp_path))).splitlines()
    shown = prints(LISTENING)
    assert heard[0] == shown[0]
    assert heard[-2:] == shown[-2:]
    assert set(heard) <= {line.rstrip() for line in shown}
    assert "input_required The outline is ready." in heard


@pytest.mark.parametrize("command", LISTENERS)
async def test_a_client_that_listens_answers_and_has_the_result(command: Command, tmp_path: Path) -> None:
    async with running(REPORT_SERVER, tmp_path) as (server, _):
        output = await printed(*await asyncio.to_thread(command, server.port, tmp_path))
    assert "input_required The outline is ready.\n" in output
    assert '"approved": true' in output.replace("\\n", "")


@pytest.mark.slow
@pytest.mark.parametrize("command", LISTENERS)
async def test_a_client_that_listens_goes_on_when_the_server_is_back(command: Command, tmp_path: Path) -> None:
    """The first server runs no tasks, so that the stream ends before its task does."""
    async with running(REPORT_SERVER, tmp_path, "--no-worker") as (server, _):
        made = await asyncio.to_thread(command, server.port, tmp_path)
        async with started(*made) as client:
            await client.until("working")
            await server.stop()
            async with attended(await start(REPORT_SERVER, tmp_path, port=server.port)):
                lines = await client.ends()
    assert '"approved": true' in "".join(lines).replace("\\n", "")


async def test_who_listens_to_what_nobody_knows_is_told_why(tmp_path: Path) -> None:
    async with running(REPORT_SERVER, tmp_path) as (server, _):
        assert "refused: " in await printed(*following(server.port, tmp_path), NOBODYS, code=1)


# -- what the page on listening shows ----------------------------------------------------------------------------------


def plain(message: str) -> dict[str, Any]:
    """A message in JSON, without its times and without what the SDK adds to each result."""
    body = json.loads(PASSING.sub("…", message))
    body.get("result", {}).get("_meta", {}).pop(SERVER_INFO, None)
    return body


async def test_a_stream_holds_what_the_page_shows(tmp_path: Path) -> None:
    page = LISTENING.read_text("utf-8")
    request = MESSAGE.search(page)
    assert request is not None
    asked = plain(request["body"])
    frames = [plain(block) for block in re.findall(r"```json\n(.*?)```", page, re.DOTALL)]
    async with running(REPORT_SERVER, tmp_path) as (_, client):
        task_id = await client.start("generate_report", {"size": "large"})
        await client.until(task_id, "input_required")
        sent = listen_request([task_id, NOBODYS], id=asked["id"])
        del sent["params"]["_meta"]
        assert plain(json.dumps(sent)) == asked
        async with listening(client, task_id, NOBODYS, id=asked["id"]) as listener:
            await listener.reaches("input_required")
            await client.cancel(task_id)
            await listener.ends()
    assert [plain(json.dumps(frame)) for frame in listener.frames] == frames


REFUSED: Final[list[tuple[dict[str, Any], dict[str, Any]]]] = [
    ({"notifications": {"taskIds": [NOBODYS]}}, NOTHING),
    ({"taskIds": [NOBODYS]}, EVERYTHING),
    ({"notifications": {"taskIds": NOBODYS}}, EVERYTHING),
    ({"notifications": {"taskIds": MANY}}, EVERYTHING),
]
"""Parameters and what the client declares: without the extension, in the wrong place, no list, too many."""


async def test_what_is_refused_is_refused_as_the_page_has_it(tmp_path: Path) -> None:
    async with running(REPORT_SERVER, tmp_path) as (_, client):
        for params, capabilities in REFUSED:
            request = envelope("subscriptions/listen", params, id=1, capabilities=capabilities)
            reply = await refused(client, request)
            assert f"| {reply.code} `{reply.error['message']}`" in LISTENING.read_text("utf-8")


# -- clients of 2025-11-25 ---------------------------------------------------------------------------------------------


@pytest.fixture
def legacy_server(tmp_path: Path) -> Path:
    """The server of the page: the example, with the option."""
    changed = tmp_path / "server.py"
    code, options = 'Tasks("sqlite:///reports.db")', 'Tasks("sqlite:///reports.db", legacy=True)'
    assert options in LEGACY.read_text("utf-8")
    changed.write_text(REPORT_SERVER.read_text("utf-8").replace(code, options), "utf-8")
    return changed


async def old_client(port: int, *arguments: str, code: int = 0) -> list[str]:
    """What the example says, but for the warnings."""
    python = await asyncio.to_thread(old_sdk.interpreter)
    script, url = ROOT / "examples/old_client.py", f"http://127.0.0.1:{port}/mcp"
    output = await printed(python, "-W", "ignore::DeprecationWarning", "-I", script, url, *arguments, code=code)
    return output.splitlines()


@pytest.mark.timeout(600)  # the first time, its environment is made
async def test_the_old_client_prints_what_the_page_shows(legacy_server: Path, tmp_path: Path) -> None:
    async with running(legacy_server, tmp_path) as (server, _):
        heard = await old_client(server.port)
    shown = prints(LEGACY)
    # A poll may come between the message and the question that follows it.
    assert set(heard) <= {*shown, "working The outline is ready."}
    assert heard[-4:] == shown[-4:]


@pytest.mark.timeout(600)
async def test_the_old_client_goes_on_with_a_task_that_outlived_the_server(legacy_server: Path, tmp_path: Path) -> None:
    async with running(legacy_server, tmp_path, "--no-worker") as (_, client):
        task_id = await client.start("generate_report", {"size": "large"})
    async with running(legacy_server, tmp_path) as (server, _):
        heard = await old_client(server.port, task_id)
    assert heard[-4:] == prints(LEGACY)[-4:]


@pytest.mark.timeout(600)
async def test_without_the_option_client_and_log_say_what_the_page_explains(tmp_path: Path) -> None:
    async with running(REPORT_SERVER, tmp_path) as (server, _):
        output = "\n".join(await old_client(server.port, code=1))
        log = server.output.read_text()
    said = "The client did not declare the elicitation capability, which the tool needs"
    assert said in output
    assert f"| `{said}` |" in LEGACY.read_text("utf-8")
    assert "legacy=True" in log
