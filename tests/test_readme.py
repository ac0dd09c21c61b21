"""What the documentation shows is what there is: its code is files that are served.

The blocks of the README are copies of files under examples/, since nothing is included there; the pages under docs/
include them. `conformance_*.py` are the fixtures of the official suite, which runs them.
"""

import asyncio
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
from mcp.client import Client

from perdure import TaskContext
from tests.acceptance.support import REPORT_SERVER, running
from tests.support import PATIENCE
from tests.wire.envelopes import NOTHING
from tests.wire.support import Client as RawClient
from tests.wire.support import hosting, serving

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"<!-- file: (?P<path>\S+) -->\n```python\n(?P<code>.*?)```", re.DOTALL)
INCLUDED = re.compile(r'```python\n--8<-- "(?P<path>examples/\w+\.py)"\n```')

PAGES = sorted((ROOT / "docs").rglob("*.md"))
SERVERS = {
    "adopt": {"sum_of_squares"},
    "asking": {"tidy_up", "book_flight", "count_primes"},
    "celery_jobs": {"thumbnail"},
    "durable": {"write_book"},
    "jobs": {"disk_usage"},
    "mounted": {"greeting", "sum_of_squares"},
    "options": {"count_words", "send_letters"},
    "own_server": {"double", "sum_of_squares"},
    "parcels": {"follow_up"},
    "queues": {"train", "predict", "describe"},
    "refunds": {"refund"},
    "rendering": {"render"},
    "report_server": {"generate_report"},
    "retrying": {"translate_page"},
    "secured": {"sum_of_squares"},
    "trips": {"book_trip"},
    "versions": {"article"},
}
"""Each server under examples/, and its tools."""
CLIENTS: Final = {"walkthrough"}
TESTS: Final = {"test_my_store", "test_refunds", "test_versions"}
"""Run by `test_examples.py`, like what the pages say of the servers; a store's by `testing/test_stores.py`."""
MESSAGE = re.compile(r"^(?P<head>(?:POST|HTTP)[^{]*?)\n\n(?P<body>\{\n.*?^\})$", re.MULTILINE | re.DOTALL)
PASSING = re.compile(r"tsk_\w{32}|\d{4}-\d\d-\d\dT[\d:.]+Z")


def blocks() -> dict[str, str]:
    return {match["path"]: match["code"] for match in BLOCK.finditer((ROOT / "README.md").read_text("utf-8"))}


def test_every_python_block_of_the_readme_names_its_file() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert readme.count("```python") == len(blocks()) == 2


@pytest.mark.parametrize("path", ["examples/adopt.py", "examples/report_server.py"])
def test_a_block_is_the_end_of_its_file(path: str) -> None:
    """The file may begin with a docstring that the README tells in prose."""
    assert (ROOT / path).read_text("utf-8").endswith(blocks()[path])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_python_block_of_a_page_is_a_file(page: Path) -> None:
    text = page.read_text("utf-8")
    included = [match["path"] for match in INCLUDED.finditer(text)]
    assert text.count("```python") == len(included)
    assert all(Path(path).stem in {*SERVERS, *CLIENTS, *TESTS} for path in included)


def test_no_example_is_left_out() -> None:
    examples = {path.stem for path in (ROOT / "examples").glob("*.py")}
    assert {name for name in examples if not name.startswith("conformance_")} == {*SERVERS, *CLIENTS, *TESTS}


def imported(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the examples expect: a folder for their store, and what `secured.py` takes from the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REQUEST_STATE_KEY", "0123456789abcdef" * 2)
    monkeypatch.setenv("TOKENS", '{"secret": {"client_id": "cli", "scopes": [], "subject": "ann"}}')


@pytest.mark.usefixtures("surroundings")
@pytest.mark.parametrize("name", SERVERS)
def test_importing_an_example_touches_no_store(name: str, tmp_path: Path) -> None:
    imported(name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("surroundings")
@pytest.mark.parametrize("name", SERVERS)
async def test_an_example_serves_its_tools(name: str) -> None:
    async with Client(imported(name).mcp) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == SERVERS[name]


@pytest.mark.usefixtures("surroundings")
async def test_the_secured_example_knows_the_tokens_that_it_was_given() -> None:
    module = imported("secured")
    verifier = module.KnownTokens({"secret": {"client_id": "cli", "scopes": [], "subject": "ann"}})
    assert (await verifier.verify_token("secret")).subject == "ann"
    assert await verifier.verify_token("another") is None


# -- a first task ------------------------------------------------------------------------------------------------------


Message = tuple[str, dict[str, Any]]


def messages(text: str, *, hide: str = "") -> list[Message]:
    """The heads and bodies of HTTP messages, whatever their layout, ids and times, without members of that name."""

    def shown(members: dict[str, Any]) -> dict[str, Any]:
        return {name: "…" if name == "id" else member for name, member in members.items() if name != hide}

    found = MESSAGE.finditer(PASSING.sub("…", text))
    return [(match["head"], json.loads(match["body"], object_hook=shown)) for match in found]


def without_waiting(exchanges: list[Message]) -> list[Message]:
    """Without the polls that found the task at work: a busy machine has some, and the page has none."""
    pairs = zip(exchanges[::2], exchanges[1::2], strict=True)
    early = {"resultType": "complete", "status": "working"}
    return [each for pair in pairs if not early.items() <= pair[1][1]["result"].items() for each in pair]


async def walked(port: int) -> str:
    """What the walkthrough prints, against a server on that port."""
    script = ROOT / "examples/walkthrough.py"
    process = await asyncio.create_subprocess_exec(
        sys.executable, script, "--port", str(port), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(PATIENCE):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, output.decode()
    return output.decode()


async def test_a_first_task_sends_and_gets_what_the_page_shows(tmp_path: Path) -> None:
    """The page shows `_meta` in the first request only, and says so."""
    async with running(REPORT_SERVER, tmp_path) as (server, _):
        output = await walked(server.port)
    page = (ROOT / "docs/first-task.md").read_text("utf-8")
    assert messages(page)[0] == messages(output)[0]
    shown = messages(page, hide="_meta")
    assert len(shown) == page.count("```http") == 8
    assert shown == without_waiting(messages(output, hide="_meta"))


# -- what the other examples promise -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("surroundings")
async def test_a_mounted_server_runs_tasks_within_its_own_lifespan() -> None:
    """What that lifespan yields is for ordinary tools."""
    mounted = imported("mounted")

    @mounted.tasks.tool()
    async def state(task: TaskContext) -> str:
        return repr(task.lifespan_context)

    async with hosting(mounted.app) as (http, url):
        client = RawClient(http, f"{url}/tools/mcp")
        assert (await client.call("greeting")).text == "Hello"
        assert (await client.call("state", capabilities=NOTHING)).text == "None"
        assert (await client.finish("sum_of_squares", {"upto": 3}))["result"]["structuredContent"] == {"result": 14}


@pytest.mark.usefixtures("surroundings")
async def test_a_predicate_keeps_small_calls_out_of_tasks() -> None:
    async with serving(imported("options").mcp) as (http, url):
        client = RawClient(http, url)
        assert (await client.call("count_words", {"text": "two words"})).result["structuredContent"] == {"result": 2}
        done = await client.finish("count_words", {"text": "word " * 1000})
        assert done["result"]["structuredContent"] == {"result": 1000}
        assert done["ttlMs"] > 86_400_000, "the result is there for a day"


@pytest.mark.usefixtures("surroundings")
async def test_a_preparation_asks_before_there_is_a_task() -> None:
    call = {"count": 2}
    async with serving(imported("options").mcp) as (http, url):
        client = RawClient(http, url)
        asked = (await client.call("send_letters", call)).result
        assert asked["resultType"] == "input_required"
        state = {"requestState": asked["requestState"]} if "requestState" in asked else {}
        for answer, text in (
            ({"action": "decline"}, "Nothing was sent"),
            ({"action": "accept", "content": {"address": "Ada"}}, "2 letters to Ada"),
        ):
            reply = await client.call("send_letters", call, params={**state, "inputResponses": {"address": answer}})
            result = reply.result
            if result["resultType"] == "task":
                result = (await client.until(result["taskId"]))["result"]
            assert text in result["content"][0]["text"]


def said(task: dict[str, Any]) -> str:
    """The text that a task came to."""
    return task["result"]["content"][0]["text"]


async def answered(client: RawClient, tool: str, arguments: dict[str, Any], content: dict[str, bool]) -> str:
    """What a tool says in the end that asks a person once."""
    task_id = await client.start(tool, arguments)
    asked = await client.until(task_id, "input_required")
    [key] = asked["inputRequests"]
    await client.update(task_id, {key: {"action": "accept", "content": content}})
    return said(await client.until(task_id))


@pytest.mark.usefixtures("surroundings")
async def test_a_book_is_written_in_steps_around_an_approval() -> None:
    async with serving(imported("durable").mcp) as (http, url):
        client = RawClient(http, url)
        arguments = {"topic": "tea"}
        refused = await answered(client, "write_book", arguments, {"approved": False})
        assert refused == "Error executing tool write_book: The outline was not approved."
        written = await answered(client, "write_book", arguments, {"approved": True})
        assert written == "https://books.example/107"
