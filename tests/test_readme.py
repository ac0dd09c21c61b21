"""What the documentation shows is what there is: its code is files that are served.

The blocks of code in the README and in the pages under docs/ are copies of files under examples/, which
`docs/include.py` puts there. `conformance_*.py` are the fixtures of the official suite, which runs them.
"""

import asyncio
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import httpx2
import pytest
from mcp.client import Client

from docs.include import PAGES, README, filled, made, shown, without_docstring
from perdure import TaskContext
from perdure.store.keys import new_key
from tests.acceptance.support import REPORT_SERVER, running
from tests.clients import printed
from tests.support import PATIENCE
from tests.wire.envelopes import NOTHING
from tests.wire.support import Client as RawClient
from tests.wire.support import hosting, serving

ROOT = Path(__file__).parents[1]
SERVERS = {
    "adopt": {"sum_of_squares"},
    "asking": {"tidy_up", "book_flight", "count_primes"},
    "behind": {"sum_of_squares"},
    "celery_jobs": {"thumbnail"},
    "durable": {"write_book"},
    "exporting": {"export_orders"},
    "jobs": {"disk_usage"},
    "jwt_server": {"sum_of_squares"},
    "mounted": {"greeting", "sum_of_squares"},
    "options": {"count_words", "send_letters"},
    "own_server": {"double", "sum_of_squares"},
    "parcels": {"follow_up"},
    "queues": {"train", "predict", "describe"},
    "refunds": {"refund"},
    "releasing": {"release"},
    "rendering": {"render"},
    "report_server": {"generate_report"},
    "retrying": {"translate_page"},
    "sealed": {"summarize"},
    "secured": {"sum_of_squares"},
    "shared_tasks": {"sum_of_squares"},
    "transcribing": {"transcribe"},
    "trips": {"book_trip"},
    "versions": {"article"},
}
"""Each server under examples/, and its tools."""
PARTS: Final = {"jwt_tokens"}
"""What some of them import."""
CLIENTS: Final = {"agent", "by_hand", "calling", "following", "listening_with_the_sdk", "old_client", "walkthrough"}
"""Run by `test_clients.py`, but the last, which is run below."""
TESTS: Final = {"test_my_store", "test_refunds", "test_refunds_on_postgresql", "test_versions"}
"""Run by `test_examples.py`, like what the pages say of the servers; a store's by `testing/test_stores.py`."""
EXAMPLES: Final = {*SERVERS, *PARTS, *CLIENTS, *TESTS}
LISTENING: Final = "listening.mjs"
"""The one that is not Python, run by `test_clients.py`."""
GATEWAY: Final = "gateway.toml"
"""The file of a gateway, run by `gateway/test_example.py`."""
SHELL = re.compile(r"```sh\n(?P<script>.*?)```", re.DOTALL)
MESSAGE = re.compile(r"^(?P<head>(?:POST|HTTP)[^{]*?)\n\n(?P<body>\{\n.*?^\})$", re.MULTILINE | re.DOTALL)
PASSING = re.compile(r"tsk_\w{32}|\d{4}-\d\d-\d\dT[\d:.]+Z")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_of_code_of_a_page_is_an_example(page: Path) -> None:
    text = page.read_text("utf-8")
    blocks = sum(text.count(f"```{language}\n") for language in ("python", "js", "toml"))
    assert blocks == text.count("<!-- file:") == len(shown(text))
    assert {Path(path).name for path in shown(text)} <= {*(f"{name}.py" for name in EXAMPLES), LISTENING, GATEWAY}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_block_is_its_file(page: Path) -> None:
    """The README leaves a file's docstring out."""
    for path, code in shown(page.read_text("utf-8")).items():
        file = (ROOT / path).read_text("utf-8")
        assert code in ([without_docstring(file)] if page == README else [file]), f"{path} changed: run `make docs`"


def test_the_readme_shows_programs_from_their_first_import_on() -> None:
    blocks = shown(README.read_text("utf-8"))
    assert [Path(path).stem for path in blocks] == ["adopt", "report_server"]
    assert all(code.startswith("from ") for code in blocks.values())


def test_blocks_are_filled_and_the_rest_of_a_page_is_left_alone() -> None:
    empty = "Before.\n\n<!-- file: examples/refunds.py -->\n```python\n{}```\nAfter.\n\n```python\nno file\n```\n"
    page = empty.format((ROOT / "examples/refunds.py").read_text("utf-8"))
    assert filled(empty.format(""), whole=True) == filled(empty.format("stale = 1\n"), whole=True) == page
    assert made()[README] == README.read_text("utf-8")


def test_a_page_that_names_no_file_of_ours_is_an_error() -> None:
    with pytest.raises(FileNotFoundError, match="no_such"):
        filled("<!-- file: examples/no_such.py -->\n```python\n```\n", whole=True)


def test_no_example_is_left_out() -> None:
    examples = {path.stem for path in (ROOT / "examples").glob("*.py")}
    assert {name for name in examples if not name.startswith("conformance_")} == EXAMPLES
    assert [path.name for path in (ROOT / "examples").glob("*.mjs")] == [LISTENING]
    assert [path.name for path in (ROOT / "examples").glob("*.toml")] == [GATEWAY]


def imported(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the examples expect: each other, a folder for their store, and what some take from the environment."""
    monkeypatch.setattr(sys, "path", [str(ROOT / "examples"), *sys.path])
    monkeypatch.delitem(sys.modules, "jwt_tokens", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SUMS_SECRET", "0123456789abcdef" * 2)
    monkeypatch.setenv("CLINIC_KEYS", new_key("today"))
    monkeypatch.setenv("ISSUER", "https://login.example.com")
    monkeypatch.setenv("JWKS", "https://login.example.com/jwks.json")
    monkeypatch.setenv("AUDIENCE", "https://tasks.example.com/mcp")
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


@pytest.mark.usefixtures("surroundings")
async def test_the_sealed_example_leaves_nothing_in_its_store_that_can_be_read(tmp_path: Path) -> None:
    async with Client(imported("sealed").mcp) as client:
        result = await client.call_tool("summarize", {"notes": "xyzzy hurts"})
    assert result.structured_content == {"result": "2 words, of which the first is xyzzy"}
    stored = contents(tmp_path)
    assert b"summarize" in stored
    assert b"xyzzy" not in stored


def contents(folder: Path) -> bytes:
    """What is in the files of a folder."""
    return b"".join(file.read_bytes() for file in folder.iterdir())


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


async def test_a_first_task_sends_and_gets_what_the_page_shows(tmp_path: Path) -> None:
    """The page shows `_meta` in the first request only, and says so."""
    async with running(REPORT_SERVER, tmp_path) as (server, _):
        output = await printed(sys.executable, ROOT / "examples/walkthrough.py", "--port", str(server.port))
    page = (ROOT / "docs/first-task.md").read_text("utf-8")
    assert messages(page)[0] == messages(output)[0]
    shown = messages(page, hide="_meta")
    assert len(shown) == page.count("```http") == 8
    assert shown == without_waiting(messages(output, hide="_meta"))


SEND = """\
curl() {
    test "$1" = -s && shift
    printf '%s\\0' "$@"
}
"""
"""Says what a shell would pass to curl, which not every machine has; `sent` does with it what curl does."""


async def sent(script: str, port: int) -> dict[str, Any]:
    """The result of the request that a script ends with: its quoting is the shell's business, as for a reader."""
    shell = await asyncio.create_subprocess_exec("sh", "-euc", f"{SEND}\n{script}", stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(PATIENCE):
        output, _ = await shell.communicate()
    assert shell.returncode == 0
    url, *options = output.decode().split("\0")[:-1]
    pairs = list(zip(options[::2], options[1::2], strict=True))
    headers = dict(value.split(": ", 1) for option, value in pairs if option == "-H")
    [body] = [value for option, value in pairs if option == "-d"]
    assert len(pairs) == len(headers) + 1
    async with httpx2.AsyncClient() as http:
        answer = await http.post(url.replace(":8000", f":{port}"), content=body, headers=headers)
    return answer.json()["result"]


async def test_a_first_task_can_be_sent_by_hand(tmp_path: Path) -> None:
    """With nothing changed but the port and the task's id, as the page says."""
    page = (ROOT / "docs/first-task.md").read_text("utf-8")
    call, get = SHELL.findall(page)
    async with running(REPORT_SERVER, tmp_path) as (server, _):
        handle = await sent(call, server.port)
        assert handle["resultType"] == "task"
        meta, _, _ = call.partition("\ncurl ")
        task = await sent(f"{meta}\n" + re.sub(r"tsk_\w{32}", handle["taskId"], get), server.port)
    assert task["taskId"] == handle["taskId"]
    left_out = {"io.modelcontextprotocol/serverInfo"}
    assert handle["_meta"].keys() == task["_meta"].keys() == left_out
    assert left_out < set(page.split("`"))


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


@pytest.mark.usefixtures("surroundings")
@pytest.mark.parametrize("name", ["jwt_server", "shared_tasks"])
@pytest.mark.parametrize("variable", ["ISSUER", "JWKS", "AUDIENCE", "REQUEST_STATE_KEY"])
def test_what_an_example_lacks_in_the_environment_it_names_in_a_line(
    name: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for empty in (True, False):
        monkeypatch.setenv(variable, "") if empty else monkeypatch.delenv(variable)
        with pytest.raises(
            SystemExit, match=rf"^{variable} is not in the environment: the beginning of jwt_tokens\.py"
        ):
            imported(name)


@pytest.mark.usefixtures("surroundings")
@pytest.mark.parametrize("name", ["jwt_server", "shared_tasks", "secured"])
def test_an_example_with_users_has_a_key_of_all_servers_and_takes_only_its_own_tokens(name: str) -> None:
    """Whoever takes one over takes that over."""
    module = imported(name)
    assert not module.tasks.assembly.attachment.key_of_its_own
    assert module.mcp.settings.auth.validate_token_resource is True


@pytest.mark.usefixtures("surroundings")
@pytest.mark.parametrize("name", ["jwt_server", "shared_tasks", "secured", "sealed"])
def test_what_an_example_of_security_keeps_of_its_users_it_keeps_for_a_time(name: str) -> None:
    tools = imported(name).tasks.assembly.catalog.tools.values()
    assert all(tool.options.ttl_ms is not None for tool in tools)
