"""What the pages say of their examples is what happens. That they are served, and shown as they are: `test_readme.py`.

Most run in the harness, as the page on testing has it; what promises something of HTTP or of processes is served.
"""

import asyncio
import importlib.util
import logging
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
from celery.contrib.testing.worker import start_worker

from perdure import AlreadySettled, TaskContext, TaskNotFound, Tasks
from perdure.ops.operating import say_status
from perdure.testing import Harness, TaskView, crash_everywhere
from tests.support import PATIENCE, eventually
from tests.wire.support import Client, hosting, serving

ROOT: Final = Path(__file__).parents[1]
EXAMPLES: Final = ROOT / "examples"


def example(name: str) -> Any:
    """The module, made anew."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page(name: str) -> str:
    """The text of a page, on one line, as a reader sees it."""
    return " ".join((ROOT / "docs" / name).read_text("utf-8").replace("\n> ", " ").split())


async def called(module: ModuleType, tool: str, arguments: dict[str, Any], then: str = "") -> TaskView:
    """What a call comes to, if `then` has passed as well."""
    async with Harness(module.tasks) as harness:
        task = await harness.call(tool, arguments)
        if then:
            await harness.advance(then)
        return await harness.look(task)


def names(view: TaskView) -> list[str]:
    return [entry.name for entry in view.journal.entries.values()]


class Flaky:
    """A function that raises the first times."""

    def __init__(self, error: Exception, times: int, value: str = "there") -> None:
        self.error, self.left, self.value = error, times, value
        self.calls = 0

    async def __call__(self, *_: object) -> str:
        self.calls += 1
        if self.left:
            self.left -= 1
            raise self.error
        return self.value


# -- steps -------------------------------------------------------------------------------------------------------------


async def test_another_question_under_a_known_key_is_the_error_that_the_page_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = example("refunds")
    async with Harness(module.tasks) as harness:
        task = await harness.call("refund", {"number": "17"})
        monkeypatch.setattr(module, "Decision", module.Order)
        task = await harness.answer(task, {"agree": {"approved": True}})
    assert task.error is not None
    assert task.error.code == -32603
    assert task.error.message in page("steps.md")


async def test_a_trip_is_booked_in_steps_side_by_side() -> None:
    task = await called(example("trips"), "book_trip", {"to": "Rome"})
    assert task.value == "receipt 1"
    assert names(task) == ["flight", "room", "charge"]


async def test_a_step_that_fails_is_caught_by_its_own_error() -> None:
    task = await called(example("trips"), "book_trip", {"to": "Atlantis"})
    assert task.result.is_error
    assert "No trip to Atlantis: no room is free" in task.value


async def test_nobody_is_charged_twice_whatever_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    module = example("trips")
    charge, outcomes = Flaky(ValueError(), 0, "receipt 1"), set[str]()
    monkeypatch.setattr(module, "charge", charge)

    async def scenario(harness: Harness) -> None:
        charge.calls = 0
        outcomes.add((await harness.call("book_trip", {"to": "Rome"})).value)
        assert charge.calls <= 1

    await crash_everywhere(partial(Harness, module.tasks), scenario)
    assert len(outcomes) == 2, "a receipt, and what is said if a worker died in the charge"


async def test_a_step_in_an_asyncio_task_of_the_tools_own_is_the_error_that_the_page_shows() -> None:
    tasks = Tasks("sqlite:///unused.db")

    @tasks.tool()
    async def trip(task: TaskContext) -> str:
        found = await asyncio.gather(task.step("flight", repr, 1), task.step("room", repr, 2))
        return str(found)

    async with Harness(tasks) as harness:
        task = await harness.call("trip", {})
    assert task.error is not None
    assert task.error.code == -32603
    assert task.error.message in page("steps.md")


async def test_a_step_takes_keyword_arguments_as_the_page_shows() -> None:
    assert 'task.step("pay back", partial(pay_back, order, key=task.id))' in page("steps.md")
    module = example("refunds")
    tasks = Tasks("sqlite:///unused.db")

    @tasks.tool()
    async def refund(task: TaskContext) -> str:
        order = module.Order(customer="Ann", amount=3)
        return await task.step("pay back", partial(module.pay_back, order, key=task.id))

    async with Harness(tasks) as harness:
        assert (await harness.call("refund", {})).value == "receipt for 3"


# -- retrying ----------------------------------------------------------------------------------------------------------


async def test_a_step_and_its_tool_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    module = example("retrying")
    fetch, translate = Flaky(ConnectionError("line dropped"), 2), Flaky(TimeoutError("no answer"), 2, "fertig")
    monkeypatch.setattr(module, "fetch", fetch)
    monkeypatch.setattr(module, "translate", translate)
    task = await called(module, "translate_page", {"url": "u", "to": "de"}, then="1h")
    assert task.value == "fertig"
    assert (fetch.calls, translate.calls) == (3, 3), "what has succeeded is not done again"
    text = page("howto/retry.md")
    assert [event.kind.value for event in task.timeline] == ["step_retry", "step_retry", "retry", "retry"]
    assert all(event.detail.replace("try 2", "try 1") in text for event in task.timeline)


async def test_after_the_last_attempt_the_error_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    module = example("retrying")
    translate = Flaky(TimeoutError("no answer"), 1000)
    monkeypatch.setattr(module, "translate", translate)
    task = await called(module, "translate_page", {"url": "u", "to": "de"}, then="3h")
    assert task.result.is_error
    assert translate.calls == 6


# -- timers ------------------------------------------------------------------------------------------------------------


async def test_a_parcel_is_asked_after_until_somebody_knows() -> None:
    async with Harness(example("parcels").tasks) as harness:
        task = await harness.call("follow_up", {"parcel": "A1"})
        assert task.status == "working"
        await harness.advance("3 days")
        assert list((await harness.look(task)).questions) == ["arrived_1"]
        await harness.advance("1 day")
        await harness.answer(task, {"arrived_2": {"arrived": False}})
        await harness.advance("1 day")
        task = await harness.answer(task, {"arrived_3": {"arrived": True}})
        assert task.value == "Parcel A1 has arrived."


async def test_a_parcel_that_nobody_knows_of_is_given_up() -> None:
    task = await called(example("parcels"), "follow_up", {"parcel": "A1"}, then="6 days")
    assert task.value == "Nobody knows where parcel A1 is."


# -- tests and versions ------------------------------------------------------------------------------------------------


async def test_the_examples_of_tests_pass() -> None:
    """In their folder, as the page has it: with no configuration of ours, and no plugin but the one that it names."""
    files = [path.name for path in sorted(EXAMPLES.glob("test_*.py")) if path.stem != "test_my_store"]
    command = [
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "anyio.pytest_plugin",
        *files,
    ]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-B",
        *command,
        cwd=EXAMPLES,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, output.decode()
    assert b"6 passed" in output


async def test_the_page_counts_the_crashes_that_are_played() -> None:
    module = example("refunds")

    async def scenario(harness: Harness) -> None:
        task = await harness.call("refund", {"number": "17"})
        await harness.answer(task, {"agree": {"approved": True}})

    played = await crash_everywhere(partial(Harness, module.tasks), scenario)
    assert f"how many crashes it played: {played} above" in page("howto/testing.md")


async def test_code_that_changed_without_a_version_is_the_error_that_the_page_shows() -> None:
    module = example("versions")
    handlers = module.tasks.assembly.catalog.handlers
    now, handlers["tools/call:article@2"] = handlers["tools/call:article@2"], handlers["tools/call:article"]
    async with Harness(module.tasks) as harness:
        task = await harness.call("article", {"topic": "tea"})
        handlers["tools/call:article@2"] = now
        task = await harness.answer(task, {"approve": {"approved": True}})
    assert task.error is not None
    assert task.error.message in page("howto/changing-a-tool.md")


# -- who runs what -----------------------------------------------------------------------------------------------------


def test_tools_say_where_they_belong() -> None:
    handlers = example("queues").tasks.assembly.catalog.handlers
    placed = {name.removeprefix("tools/call:"): handler.placement for name, handler in handlers.items()}
    assert {name: (each.queue, each.priority, each.concurrency) for name, each in placed.items()} == {
        "train": ("slow", 0, 2),
        "predict": ("default", 10, None),
        "describe": ("default", 0, None),
    }


Loads = dict[str, tuple[int, int, int, int | None]]


@pytest.mark.parametrize(
    ("name", "loads", "unclaimable"),
    [
        ("howto/changing-a-tool.md", {"article": (0, 0, 3, None), "article@2": (2, 1, 12, 4_000)}, []),
        ("howto/workers.md", {"predict": (0, 2, 1, None), "train": (14, 0, 0, 360_000)}, ["tools/call:train"]),
    ],
)
def test_a_status_is_printed_as_the_pages_show_it(name: str, loads: Loads, unclaimable: list[str]) -> None:
    columns = ("ready", "held", "waiting", "oldest_ready_ms")
    handlers = [{"tool": f"tools/call:{tool}", **dict(zip(columns, load, strict=True))} for tool, load in loads.items()]
    said = "\n".join(say_status({"store": "", "workers": [], "tools": handlers, "unclaimable": unclaimable}))
    table = said[said.index("tool  ") :]
    assert f"{table}\n```" in (ROOT / "docs" / name).read_text("utf-8")


# -- work elsewhere ----------------------------------------------------------------------------------------------------


@pytest.fixture
def farm(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[str]]:
    """The module, and the jobs that its farm was given."""
    module, jobs = example("rendering"), list[str]()

    async def submit(scene: str, job: str) -> None:
        jobs.append(job)

    monkeypatch.setattr(module, "submit", submit)
    return module, jobs


async def test_a_farm_reports_from_python(farm: tuple[Any, list[str]]) -> None:
    module, jobs = farm
    async with Harness(module.tasks) as harness:
        task = await harness.call("render", {"scene": "dawn"})
        assert task.status == "working"
        await module.tasks.external.report(jobs[0], "half way")
        assert (await harness.look(task)).message == "half way"
        await module.tasks.external.complete(jobs[0], "s3://pictures/1")
        await harness.run()
        assert (await harness.look(task)).value == "s3://pictures/1"
        with pytest.raises(AlreadySettled):
            await module.tasks.external.fail(jobs[0], "no memory")
        with pytest.raises(TaskNotFound):
            await module.tasks.external.fail(f"{jobs[0][:-4]}made", "up")


async def test_a_farm_that_says_nothing_is_given_up(farm: tuple[Any, list[str]]) -> None:
    task = await called(farm[0], "render", {"scene": "dawn"}, then="1 day")
    assert "There is no picture of dawn: 'render' did not report in time" in task.value


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"result": "s3://pictures/1"}, "s3://pictures/1"),
        ({"error": "no memory"}, "no picture of dawn: no memory"),
        ({"result": 1}, "The result of the external work 'render' can't be used: Input should be a valid string"),
    ],
)
async def test_a_farm_reports_over_http(
    farm: tuple[Any, list[str]], tmp_path: Path, body: dict[str, str | int], text: str
) -> None:
    module, jobs = farm
    module.tasks.configure(store=f"sqlite:///{tmp_path / 'tasks.db'}")
    async with hosting(module.mcp.streamable_http_app()) as (http, url):
        client = Client(http, f"{url}/mcp")
        task_id = await client.start("render", {"scene": "dawn"})
        await eventually(lambda: bool(jobs), "the farm has the job")
        said = await http.post(f"{url}/perdure/external", json=body, headers={"Authorization": f"Bearer {jobs[0]}"})
        assert said.status_code == 204
        assert text in (await client.until(task_id))["result"]["content"][0]["text"]


async def test_a_command_is_run_and_its_output_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = example("jobs")
    monkeypatch.setattr(module, "JOBS", tmp_path / "jobs")
    monkeypatch.setattr(module, "PLACES", {"logs": tmp_path, "programs": tmp_path / "nowhere"})
    module.tasks.configure(store=f"sqlite:///{tmp_path / 'tasks.db'}")
    async with serving(module.mcp) as (http, url):
        client = Client(http, url)
        measured, failed = await asyncio.gather(
            client.finish("disk_usage", {"place": "logs"}), client.finish("disk_usage", {"place": "programs"})
        )
    assert measured["result"]["structuredContent"]["result"] > 0
    assert "du ended with 1: " in failed["result"]["content"][0]["text"]


@pytest.fixture
def own_logging() -> Iterator[None]:
    """A Celery worker takes the root logger over, handlers and level, and never gives it back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("own_logging")
async def test_a_celery_task_is_waited_for() -> None:
    """Over a broker in memory: with real ones, `tests/adapters` has it."""
    module = example("celery_jobs")
    module.farm.conf.update(broker_url="memory://", result_backend="cache+memory://")
    with start_worker(module.farm, pool="solo", perform_ping_check=False):
        async with Harness(module.tasks) as harness:
            task = await harness.call("thumbnail", {"picture": "cat"})

            async def is_done() -> bool:
                await harness.advance("1s")
                return (await harness.look(task)).status == "completed"

            await eventually(is_done, "there is a thumbnail")
            assert (await harness.look(task)).value == "cat at 64"
