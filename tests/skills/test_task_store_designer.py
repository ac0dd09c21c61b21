"""The design skill refuses what it says it refuses, and its three designs are what their code does."""

import copy
import json
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator

from perdure.testing import Harness, crash_everywhere
from tests.test_examples import Flaky, called, example, names

SKILL: Final = Path(__file__).parents[2] / "skills" / "task-store-designer"
TEXT: Final = (SKILL / "SKILL.md").read_text("utf-8")
DESIGNS: Final = ("exporting", "releasing", "transcribing")
Design = dict[str, Any]


@pytest.fixture(scope="module")
def judge() -> Any:
    schema = json.loads((SKILL / "design.schema.json").read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def design(name: str) -> Design:
    return json.loads((SKILL / "designs" / f"{name}.json").read_text("utf-8"))


def complaints(judge: Any, candidate: Design) -> set[str]:
    """Where the schema refuses a design."""
    return {each.json_path.removeprefix("$.") for each in judge.iter_errors(candidate)}


# -- the skill ---------------------------------------------------------------------------------------------------------


def test_it_says_what_it_is_for_as_skills_do() -> None:
    head = re.match(r"---\nname: (.+)\ndescription: (.+)\n---\n", TEXT)
    assert head is not None
    assert head[1] == SKILL.name
    assert len(head[2]) <= 1024
    assert len(TEXT.splitlines()) <= 500


def test_what_it_points_at_is_there() -> None:
    found = re.findall(r"\]\(([^)]+)\)", TEXT)
    assert len(found) >= 8
    assert [each for each in found if not (SKILL / each).is_file()] == []


@pytest.mark.parametrize("name", DESIGNS)
def test_its_designs_are_accepted(judge: Any, name: str) -> None:
    assert complaints(judge, design(name)) == set()


def test_its_command_says_what_is_refused_and_why(tmp_path: Path) -> None:
    program = re.search(r"python -c '(.+?)\n' design", TEXT, re.DOTALL)
    assert program is not None
    bad = design("releasing")
    bad["store"]["survives"] = []
    said: list[str] = []
    for each in (design("releasing"), bad):
        (tmp_path / "design.json").write_text(json.dumps(each))
        command = [sys.executable, "-c", program[1], str(SKILL / "design.schema.json"), str(tmp_path / "design.json")]
        said.append(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    assert said[0] == ""
    assert said[1].startswith("$.store.survives [] ")
    assert "Refused otherwise: a cache" in said[1]


def test_what_need_not_be_a_task_is_designed_with_a_reason(judge: Any) -> None:
    assert not complaints(judge, {"operation": "now: tells the time", "is_task": False, "why_not": "It ends at once."})
    assert complaints(judge, {"operation": "now: tells the time", "is_task": False})


def test_no_section_may_be_left_out(judge: Any) -> None:
    whole = design("releasing")
    for section in set(whole) - {"moves_off"}:
        assert complaints(judge, {key: value for key, value in whole.items() if key != section}), section


def put(section: str, key: str, value: Any) -> Callable[[Design], None]:
    def change(candidate: Design) -> None:
        candidate[section][key] = value

    return change


def first(section: str, key: str, value: Any) -> Callable[[Design], None]:
    def change(candidate: Design) -> None:
        candidate[section][0][key] = value

    return change


def without(section: str, key: str) -> Callable[[Design], None]:
    def change(candidate: Design) -> None:
        del candidate[section][key]

    return change


def methods(*without: str) -> Callable[[Design], None]:
    def change(candidate: Design) -> None:
        candidate["methods"] = [each for each in candidate["methods"] if each not in without]

    return change


def unsure(candidate: Design) -> None:
    del candidate["execution"]["steps"][2]["found_again_by"]


@pytest.mark.parametrize(
    ("change", "where"),
    [
        pytest.param(put("store", "survives", ["loss of the process"]), "store.survives", id="loses results"),
        pytest.param(put("store", "survives", []), "store.survives", id="memory"),
        pytest.param(put("store", "kind", "Redis"), "store.kind", id="cache"),
        pytest.param(put("store", "terminal_states", []), "store.terminal_states", id="no terminal states"),
        pytest.param(put("store", "terminal_states_change", True), "store.terminal_states_change", id="left again"),
        pytest.param(put("cancellation", "idempotent", False), "cancellation.idempotent", id="cancel fails twice"),
        pytest.param(
            put("cancellation", "changes_terminal_tasks", True), "cancellation.changes_terminal_tasks", id="overwrites"
        ),
        pytest.param(
            put("cancellation", "waits_for_the_worker", True), "cancellation.waits_for_the_worker", id="cancel hangs"
        ),
        pytest.param(
            put("cancellation", "held_while_waiting", ["a lock"]), "cancellation.held_while_waiting", id="holds a lock"
        ),
        pytest.param(put("ownership", "owner", "nobody"), "ownership.owner", id="no owner"),
        pytest.param(
            put("ownership", "checked_on", ["tasks/get", "tasks/update", "tasks/cancel"]),
            "ownership.checked_on",
            id="listening leaks",
        ),
        pytest.param(
            put("ownership", "foreign_and_unknown_answer_alike", False),
            "ownership.foreign_and_unknown_answer_alike",
            id="oracle",
        ),
        pytest.param(put("creation", "durable_before_return", False), "creation.durable_before_return", id="too early"),
        pytest.param(put("creation", "id_bits", 64), "creation.id_bits", id="guessed"),
        pytest.param(put("negotiation", "undeclared_client", "a handle"), "negotiation.undeclared_client", id="handle"),
        pytest.param(put("expiry", "counted_from", "finish"), "expiry.counted_from", id="ttl from the finish"),
        pytest.param(
            put("expiry", "finished_results_kept", "while there is room"), "expiry.finished_results_kept", id="evicted"
        ),
        pytest.param(without("expiry", "keep_result"), "expiry", id="kept for nobody knows how long"),
        pytest.param(put("expiry", "ttl", None), "expiry.ttl", id="kept beyond for ever"),
        pytest.param(
            put("execution", "after_a_crash", "is asked for by its key elsewhere"), "execution", id="no elsewhere"
        ),
        pytest.param(methods("tasks/update"), "methods", id="nobody can answer"),
        pytest.param(methods("subscriptions/listen"), "methods", id="nobody can listen"),
        pytest.param(methods("tasks/cancel"), "methods", id="nobody can cancel"),
        pytest.param(first("input", "secret", True), "input[0].secret", id="asks for a password"),
        pytest.param(first("input", "unanswered", ""), "input[0].unanswered", id="waits for ever"),
        pytest.param(unsure, "execution.steps[2]", id="nobody knows whether it happened"),
    ],
)
def test_it_refuses(judge: Any, change: Callable[[Design], None], where: str) -> None:
    candidate = copy.deepcopy(design("releasing"))
    change(candidate)
    assert complaints(judge, candidate) == {where}


@pytest.mark.parametrize("method", ["tasks/result", "tasks/list", "tasks/status"])
def test_it_refuses_the_removed_methods(judge: Any, method: str) -> None:
    candidate = design("releasing")
    candidate["methods"].append(method)
    assert complaints(judge, candidate) == {"methods[5]"}


# -- the code that follows from the designs ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", DESIGNS)
def test_the_code_has_the_mode_and_times_of_its_design(name: str) -> None:
    said, module = design(name), example(name)
    (tool,) = module.tasks.assembly.catalog.tools.values()
    assert said["operation"].startswith(f"{tool.name}: ")
    refused = said["negotiation"]["undeclared_client"] == "refuse with -32021"
    source = (Path(module.__file__)).read_text("utf-8")
    assert ('mode="task"' in source) == refused
    for option, value in (("ttl", said["expiry"]["ttl"]), ("keep_result", said["expiry"]["keep_result"])):
        assert f'{option}="{value}"' in source


async def test_an_export_goes_on_at_the_page_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = example("exporting")
    fetch = Flaky(ConnectionError("line dropped"), 2, "2026/part-0")
    monkeypatch.setattr(module, "fetch", fetch)
    task = await called(module, "export_orders", {"year": 2026, "rows": 2_500}, then="1m")
    assert task.value == {"url": "https://files.example.com/2026.csv", "rows": 2_500}
    assert names(task) == ["page 0", "page 1", "page 2", "join"]
    assert fetch.calls == 5


async def test_a_release_that_nobody_decides_on_is_not_published() -> None:
    task = await called(example("releasing"), "release", {"version": "1.0"}, then="5 days")
    assert task.result.is_error
    assert "1.0 was not published: timeout." in task.value
    assert names(task)[0] == "build"
    assert "publish" not in names(task)[2:]


async def test_a_release_goes_out_once_or_not_at_all_and_leaves_nothing_reserved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = example("releasing")
    published, reserved = list[str](), set[str]()

    async def publish(archive: str) -> str:
        published.append(archive)
        return f"https://index.example.com/{archive}"

    async def reserve(version: str) -> None:
        reserved.add(version)

    async def let_go(version: str) -> None:
        reserved.discard(version)

    for function in (publish, reserve, let_go):
        monkeypatch.setattr(module, function.__name__, function)

    async def scenario(harness: Harness) -> None:
        published.clear()
        reserved.clear()
        task = await harness.call("release", {"version": "1.0"})
        task = await harness.answer(task, {"publish": {"publish": True}})
        assert len(published) <= 1
        assert bool(reserved) == (not task.result.is_error)

    await crash_everywhere(partial(Harness, module.tasks), scenario)


async def test_a_release_that_is_cancelled_while_it_waits_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    module = example("releasing")
    reserve = Flaky(ValueError(), 0)
    monkeypatch.setattr(module, "reserve", reserve)
    async with Harness(module.tasks) as harness:
        task = await harness.cancel(await harness.call("release", {"version": "1.0"}))
        assert task.status == "cancelled"
    assert reserve.calls == 0


async def test_a_transcript_is_asked_for_until_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    module = example("transcribing")
    asked = list[str]()

    async def look(key: str) -> Any:
        asked.append(key)
        return module.Job(state="done", text="Good morning.") if len(asked) > 2 else module.Job(state="running")

    monkeypatch.setattr(module, "look", look)
    task = await called(module, "transcribe", {"recording": "call-7"}, then="10m")
    assert task.value == "Good morning."
    assert len(set(asked)) == 1


@pytest.mark.parametrize(
    ("job", "then", "said"), [("failed", "1m", "it is silent"), ("running", "12h", "did not report in time")]
)
async def test_a_transcript_that_does_not_come_is_said(
    monkeypatch: pytest.MonkeyPatch, job: str, then: str, said: str
) -> None:
    module = example("transcribing")
    withdrawn = list[str]()

    async def look(key: str) -> Any:
        return module.Job(state=job, text="it is silent")

    async def withdraw(handle: Any) -> None:
        withdrawn.append(handle.id)

    monkeypatch.setattr(module, "look", look)
    monkeypatch.setattr(module, "withdraw", withdraw)
    task = await called(module, "transcribe", {"recording": "call-7"}, then=then)
    assert task.result.is_error
    assert said in task.value
    assert bool(withdrawn) == (job == "running")
