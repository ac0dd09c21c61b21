"""The README's program, `examples/report_server.py`, as its users run it."""

from pathlib import Path
from typing import Any, Final

from tests.acceptance.support import (
    CRASH_SERVER,
    REPORT_SERVER,
    accepts,
    effect,
    effects,
    rows,
    running,
    store_url,
)
from tests.support import eventually
from tests.wire.support import Caller, piped

JSON = Any


APPROVED: Final[JSON] = {"approve_outline": {"action": "accept", "content": {"approved": True}}}


async def asked(client: Caller, size: str) -> str:
    """A report whose outline waits for approval: the task's id."""
    task_id = await client.start("generate_report", {"size": size})
    task = await client.until(task_id, "input_required")
    (request,) = task["inputRequests"].values()
    assert request["method"] == "elicitation/create"
    assert request["params"]["message"] == "Approve the generated report outline?"
    assert task["statusMessage"] == "The outline is ready."
    assert task["ttlMs"] == 900_000
    return task_id


async def report(client: Caller, size: str) -> None:
    """From the call to the approved report."""
    task_id = await asked(client, size)
    await client.update(task_id, APPROVED)
    done = await client.until(task_id, "completed")
    assert done["result"]["structuredContent"] == {"size": size, "approved": True}
    assert not done["result"].get("isError")


async def test_an_approved_outline_becomes_a_report(tmp_path: Path) -> None:
    async with running(REPORT_SERVER, tmp_path) as (_, client):
        await report(client, "large")


async def test_an_outline_that_is_not_approved_becomes_a_tool_error(tmp_path: Path) -> None:
    async with running(REPORT_SERVER, tmp_path) as (_, client):
        for no in ({"action": "accept", "content": {"approved": False}}, {"action": "decline"}, {"action": "cancel"}):
            task_id = await asked(client, "small")
            await client.update(task_id, {"approve_outline": no})
            done = await client.until(task_id, "completed")
            assert done["result"]["isError"] is True
            assert "The outline was not approved." in done["result"]["content"][0]["text"]


async def test_the_report_comes_over_stdio_too(tmp_path: Path) -> None:
    async with piped(str(REPORT_SERVER), "--stdio", "--store", store_url(tmp_path)) as client:
        await report(client, "medium")
    assert not rows(tmp_path, "SELECT * FROM session"), "the end of the input is an orderly shutdown"


async def test_a_server_without_worker_leaves_the_work_to_another_process(tmp_path: Path) -> None:
    async with running(REPORT_SERVER, tmp_path, "--no-worker") as (_, client):
        task_id = await client.start("generate_report", {"size": "large"})
        assert (await client.get(task_id)).result["status"] == "working"
        assert not rows(tmp_path, "SELECT * FROM session"), "it has no worker"
        async with running(REPORT_SERVER, tmp_path):
            await client.until(task_id, "input_required")
            await client.update(task_id, APPROVED)
            done = await client.until(task_id, "completed")
            assert done["result"]["structuredContent"] == {"size": "large", "approved": True}
        assert (await client.get(task_id)).result["status"] == "completed"


async def test_a_server_that_is_told_to_stop_hands_its_tasks_over(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with running(CRASH_SERVER, tmp_path, env={"GRACE": "100ms"}) as (first, client):
        task_id = await client.start("waiting", {"label": "handed over", "gate": str(gate)})
        before = await effect(tmp_path, task_id, "start", pid=first.pid)
        await first.stop()
    assert rows(tmp_path, "SELECT session, failures, deaths, due_at < 0 FROM run") == [(None, 0, 0, 1)]
    async with running(CRASH_SERVER, tmp_path) as (second, client):
        after = await effect(tmp_path, task_id, "start", pid=second.pid)
        assert (before.attempt, after.attempt) == (1, 1), "nobody died"
        gate.touch()
        done = await client.until(task_id, "completed")
        assert done["result"]["structuredContent"]["token"] == after.token
    assert [one.token for one in effects(tmp_path, event="end")] == [after.token]


async def test_a_task_that_ends_within_the_grace_period_ends_where_it_ran(tmp_path: Path) -> None:
    async with running(CRASH_SERVER, tmp_path, env={"GRACE": "30s"}) as (server, client):
        task_id = await client.start("long", {"label": "in time", "seconds": 1})
        ran = await effect(tmp_path, task_id, "start")
        await server.stop()
    ((status, result),) = rows(tmp_path, "SELECT status, result FROM task")
    assert status == "completed"
    assert ran.token in result


async def test_a_stopping_server_takes_no_more_requests(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with running(CRASH_SERVER, tmp_path, env={"GRACE": "30s"}) as (server, client):
        task_id = await client.start("waiting", {"label": "last", "gate": str(gate)})
        await effect(tmp_path, task_id, "start")
        server.process.terminate()
        await eventually(lambda: not accepts(server.port), "the port is closed")
        assert server.alive, "it waits for its task"
        gate.touch()
        await server.stop()
    assert rows(tmp_path, "SELECT status FROM task") == [("completed",)]
