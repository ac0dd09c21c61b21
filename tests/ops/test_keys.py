"""The keys of the environment: what `serve`, `worker` and `tasks` make of them, and that nobody sees one."""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import CliRunner, Result

from perdure import KeyRing, Tasks
from perdure.domain import lifecycle
from perdure.domain.errors import ConfigurationError, StoreUnusable
from perdure.domain.model import Completed, Failed, Failure, Outcome
from perdure.ops import keys, stores
from perdure.ops.cli import main
from perdure.store.base import Store
from perdure.store.memory import MemoryStore
from tests.ops.operating.support import in_the_middle, lines_of, minted, opened, printed
from tests.store.sealed import NEW, OLD, OTHER
from tests.store.support import new_task, running

APP = """\
from perdure import KeyRing, Tasks
tasks = Tasks("sqlite:///{folder}/tasks.db"{keys})
mcp = tasks.server("app")

@tasks.tool()
async def report() -> None: ...
"""
MATERIAL = OLD.partition(":")[2]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(sys, "path", [*sys.path])  # a program that is loaded comes first on it
    return monkeypatch


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'tasks.db'}"


def test_the_keys_are_in_the_environment_or_in_a_file_that_it_names(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.touch(0o600)
    file.write_text(f"# of 2026\n{NEW}\n{OLD}\n")
    for environment in ({"PERDURE_KEYS": f"{NEW},{OLD}"}, {"PERDURE_KEYS_FILE": str(file)}):
        ring = keys.from_environment(environment)
        assert ring is not None
        assert ring.ids == ("new", "old")
    assert keys.from_environment({}) is None


def test_in_the_clear_may_be_said_in_a_word() -> None:
    ring = keys.from_environment({"PERDURE_KEYS": "clear"})
    assert ring is not None
    assert (ring.sealing, ring.ids) == (None, ())


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"PERDURE_KEYS": MATERIAL}, "PERDURE_KEYS: key number 1 is none: write ID:KEY"),
        ({"PERDURE_KEYS": f"{NEW},old:{MATERIAL}x"}, "PERDURE_KEYS: the key 'old' is none"),
        ({"PERDURE_KEYS": "# nothing"}, "PERDURE_KEYS: there is no key"),
        ({"PERDURE_KEYS_FILE": "/nowhere/keys"}, "PERDURE_KEYS_FILE: /nowhere/keys can't be read: No such file"),
        ({"PERDURE_KEYS_FILE": "{folder}"}, "PERDURE_KEYS_FILE: {folder} can't be read: Is a directory"),
        ({"PERDURE_KEYS_FILE": "{folder}/broken"}, "PERDURE_KEYS_FILE: {folder}/broken is no text"),
        ({"PERDURE_KEYS": ""}, "PERDURE_KEYS is there and empty: put the keys into it, or the word `clear`"),
        ({"PERDURE_KEYS_FILE": ""}, "PERDURE_KEYS_FILE is there and empty: name the file of the keys in it"),
        ({"PERDURE_KEYS": " "}, "PERDURE_KEYS: there is no key"),
        ({"PERDURE_KEYS": "", "PERDURE_KEYS_FILE": "x"}, "there are both PERDURE_KEYS and PERDURE_KEYS_FILE in the"),
        ({"PERDURE_KEYS": OLD, "PERDURE_KEYS_FILE": "x"}, "there are both PERDURE_KEYS and PERDURE_KEYS_FILE in the"),
    ],
)
def test_what_is_no_key_is_refused_in_a_line_that_shows_none(
    environment: dict[str, str], said: str, tmp_path: Path
) -> None:
    (tmp_path / "broken").write_bytes(b"\xff" + MATERIAL.encode())
    named = {name: value.replace("{folder}", str(tmp_path)) for name, value in environment.items()}
    with pytest.raises(ConfigurationError) as caught:
        keys.from_environment(named)
    assert str(caught.value).startswith(said.replace("{folder}", str(tmp_path)))
    assert "\n" not in str(caught.value)
    assert MATERIAL[:8] not in repr(caught.value)
    assert caught.value.__cause__ is None
    assert not isinstance(caught.value.__context__, UnicodeError)  # it would quote the file


@pytest.mark.parametrize(("mode", "warned"), [(0o644, True), (0o600, False)])
def test_a_file_of_keys_that_all_may_read_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, warned: bool
) -> None:
    file = tmp_path / "keys"
    file.write_text(OLD)
    file.chmod(mode)
    assert keys.from_environment({"PERDURE_KEYS_FILE": str(file)}) is not None
    assert (f"{file} may be read by every user of this machine" in caplog.text) is warned


# -- the commands ------------------------------------------------------------------------------------------------------


def command(folder: Path, *arguments: str, in_code: str = "") -> Result:
    """A command about a program that can't start because its store is sealed under another key, or can."""
    program = folder / f"program_{folder.name.replace('-', '_')}.py"
    program.write_text(APP.format(folder=folder, keys=in_code))
    return CliRunner().invoke(main, [arguments[0], f"{program}:mcp", *arguments[1:]])


def seal(url: str, *ring: str) -> None:
    async def create() -> None:
        store = stores.open_store(url, keys=KeyRing(*ring))
        await store.open()
        await store.create(new_task())
        await store.close()

    anyio.run(create)


@pytest.mark.parametrize("said", ["serve", "worker"])
@pytest.mark.parametrize("given", [None, NEW, OTHER])
def test_a_sealed_store_is_refused_without_its_key_in_a_line_that_names_it(
    tmp_path: Path, url: str, environment: pytest.MonkeyPatch, said: str, given: str | None
) -> None:
    seal(url, OLD)
    if given is not None:
        environment.setenv("PERDURE_KEYS", given)
    done = command(tmp_path, said)
    assert done.exit_code == 1
    (line,) = done.output.splitlines()
    assert "has tasks that were sealed under the key 'old'" in line
    assert MATERIAL not in line


def test_a_server_that_runs_by_itself_takes_the_keys_of_the_environment_first_as_all_others_do(
    url: str, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("PERDURE_KEYS", NEW)
    given, told, own = Tasks(url, keys=KeyRing(OLD)), Tasks(url), Tasks(MemoryStore())
    for tasks in (given, told, own):
        tasks.assembly.take_keys()
    assert [str(tasks.assembly.keys) for tasks in (given, told, own)] == [str(KeyRing(NEW)), str(KeyRing(NEW)), "None"]
    environment.delenv("PERDURE_KEYS")
    given.assembly.take_keys()
    assert str(given.assembly.keys) == str(KeyRing(NEW)), "where there are none, those stay that it has"
    environment.setenv("PERDURE_KEYS", MATERIAL)
    with pytest.raises(SystemExit, match=r"^perdure: PERDURE_KEYS: key number 1 is none"):
        Tasks(url).server("keys").run("streamable-http", port=0)


@pytest.mark.parametrize("said", ["serve", "worker"])
def test_keys_that_are_none_are_refused_before_anything_is_opened(
    tmp_path: Path, environment: pytest.MonkeyPatch, said: str
) -> None:
    environment.setenv("PERDURE_KEYS", MATERIAL)
    done = command(tmp_path, said)
    assert (done.exit_code, done.output.partition(" write")[0]) == (
        1,
        "perdure: PERDURE_KEYS: key number 1 is none:",
    )
    assert not (tmp_path / "tasks.db").exists()


def test_keys_are_no_option_of_any_command() -> None:
    for each in main.commands.values():
        assert not [param for param in each.params if "key" in (param.name or "") and param.name != "new_key"]


# -- Tasks -------------------------------------------------------------------------------------------------------------


async def opens(tasks: Tasks) -> None:
    async with tasks.connected():
        pass


async def test_tasks_take_keys_and_the_environment_s_go_before_them(url: str) -> None:
    tasks = Tasks(url, keys=KeyRing(OLD))
    async with tasks.connected():
        await tasks.assembly.runtime.store.create(new_task())
    with pytest.raises(StoreUnusable, match="sealed under the key 'old'"):
        await opens(Tasks(url))
    tasks.configure(keys=KeyRing(NEW))
    with pytest.raises(StoreUnusable, match="sealed under the key 'old'"):
        await opens(tasks)
    tasks.configure(keys=KeyRing(NEW, OLD))
    await opens(tasks)


async def test_a_store_that_is_named_later_is_sealed_under_the_same_keys(url: str, tmp_path: Path) -> None:
    tasks = Tasks("sqlite:////nowhere/tasks.db", keys=KeyRing(OLD))
    tasks.configure(store=url)
    async with tasks.connected():
        await tasks.assembly.runtime.store.create(new_task())
    with pytest.raises(StoreUnusable, match="sealed under the key 'old'"):
        await opens(Tasks(url))


def test_a_store_of_ones_own_seals_by_itself() -> None:
    with pytest.raises(ConfigurationError, match="keys are for a store that is named by a URL"):
        Tasks(MemoryStore(), keys=KeyRing(OLD))
    with pytest.raises(ConfigurationError, match="keys are for a store that is named by a URL"):
        Tasks(MemoryStore()).configure(keys=KeyRing(OLD))


@pytest.mark.parametrize("given", [OLD, [OLD], 7, b"x"])
def test_what_is_no_ring_is_refused_in_a_line_that_says_what_is_and_shows_no_key(url: str, given: Any) -> None:
    for use in (lambda: Tasks(url, keys=given), lambda: Tasks(url).configure(keys=given)):
        with pytest.raises(ConfigurationError, match=r"^keys is a \w+: write KeyRing") as caught:
            use()
        assert MATERIAL[:8] not in repr(caught.value)


# -- looking -----------------------------------------------------------------------------------------------------------


def test_a_task_is_shown_without_any_key(url: str) -> None:
    task_id = opened(url, in_the_middle, KeyRing(OLD))
    found = json.loads(printed("tasks", "show", task_id, "--store", url, "--json"))
    assert (found["status"], found["tool_error"], found["error"]) == ("input_required", False, None)
    assert len(lines_of(found)) == 5
    assert [(each["kind"], each["detail"]) for each in found["timeline"]] == [("retry", "(sealed)")]
    assert "attempt failed: (sealed)" in printed("tasks", "show", task_id, "--store", url)
    printed("status", "--store", url)


@pytest.mark.parametrize("keys", [None, NEW, "clear", f"{NEW},old:lost"])
def test_who_works_on_a_store_is_shown_with_whatever_keys_there_are_and_under_which_they_seal(
    url: str, environment: pytest.MonkeyPatch, keys: str | None
) -> None:
    async def hired(store: Store) -> str:
        await store.create(new_task())
        for pid, sealing in enumerate(("old", False, "\x1b[2J")):
            await store.open_session(600_000, {"host": "db1", "pid": pid, "sealing": sealing})
        return ""

    opened(url, hired, KeyRing(OLD))
    if keys is not None:
        environment.setenv("PERDURE_KEYS", keys)
    said = printed("status", "--store", url).splitlines()
    assert {
        "what is in tasks is sealed under the key 'old' by db1:0",
        "what is in tasks is stored in the clear by db1:1",
        r"what is in tasks is sealed under the key '\x1b[2J' by db1:2",
    } <= {*said}
    found = json.loads(printed("status", "--store", url, "--json"))
    assert {each["pid"]: each["sealing"] for each in found["workers"]} == {0: "old", 1: False, 2: "\x1b[2J"}


def test_with_its_keys_it_is_shown_as_ever(url: str, environment: pytest.MonkeyPatch) -> None:
    task_id = opened(url, in_the_middle, KeyRing(OLD))
    environment.setenv("PERDURE_KEYS", OLD)
    found = json.loads(printed("tasks", "show", task_id, "--store", url, "--json"))
    assert [(each["kind"], each["detail"]) for each in found["timeline"]] == [("retry", "ConnectionError: refused")]
    environment.setenv("PERDURE_KEYS", NEW)
    assert "sealed under the key 'old'" in CliRunner().invoke(main, ["tasks", "show", task_id, "--store", url]).output


@pytest.mark.parametrize(
    ("outcome", "as_json", "line"),
    [
        (Completed({"isError": True}), {"tool_error": None, "error": None}, "status    completed"),
        (
            Failed(Failure(lifecycle.INTERNAL_ERROR, "Internal error")),
            {"tool_error": False, "error": {"code": None, "message": None}},
            "error     sealed",
        ),
    ],
)
def test_how_a_task_ended_is_sealed_too(url: str, outcome: Outcome, as_json: dict[str, Any], line: str) -> None:
    async def end(store: Store) -> str:
        claim = await running(store, minted())
        await store.finish(claim, outcome)
        return claim.task.id

    task_id = opened(url, end, KeyRing(OLD))
    found = json.loads(printed("tasks", "show", task_id, "--store", url, "--json"))
    assert {name: found[name] for name in as_json} == as_json
    assert line in printed("tasks", "show", task_id, "--store", url).splitlines()
