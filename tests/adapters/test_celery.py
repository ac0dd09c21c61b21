"""A Celery task as external work: a real broker, a real worker, and a server that is killed in between."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from celery import Celery

from perdure import ConfigurationError, Handle, TaskContext, Tasks
from perdure.adapters import celery as adapter
from perdure.store.memory import MemoryStore
from perdure.testing import Harness
from tests.acceptance.support import accepts, connected, free_port, running, start
from tests.adapters.test_process import alive
from tests.support import PATIENCE, eventually
from tests.wire.envelopes import JSON
from tests.wire.support import ROOT, Client

APP = Path(__file__).with_name("celery_app.py")
HANDLE = Handle("tsk_" + "a" * 32, "0", "t" * 32)


class House:
    """A broker and a worker of this module's own, and what the worker did."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.log = folder / "celery.log"
        self.env = {"CELERY_BROKER": f"redis://127.0.0.1:{port}/0", "CELERY_LOG": str(self.log)}

    def ran(self, word: str) -> int:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return lines.count(word)

    async def process_of(self, size: str) -> int:
        """The process of the worker that resizes to this size."""
        await eventually(lambda: self.ran(f"resize {size}") == 1, "no worker took it")
        await eventually(lambda: f"\n{size} " in self.log.read_text(), "it did not say who it is")
        return int(self.log.read_text().rpartition(f"\n{size} ")[2].split()[0])


async def _end(process: asyncio.subprocess.Process) -> None:
    """At once, and the whole group, since a worker has processes of its own: nobody needs what it would still do."""
    os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


async def _begun(out: Path, *command: str, env: dict[str, str] | None = None) -> asyncio.subprocess.Process:
    with out.open("wb") as sink:
        return await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, env={**os.environ, **(env or {})}, stdout=sink, stderr=sink, start_new_session=True
        )


@pytest.fixture(scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[House]:
    """Both are up for as long as this module's tests run. Nothing is skipped where there is no broker: CI has one."""
    program = shutil.which("redis-server")
    assert program is not None, "these tests need a broker: apt-get install redis-server"
    folder, port = tmp_path_factory.mktemp("celery"), free_port()
    house = House(folder, port)
    options = ["--port", f"{port}", "--bind", "127.0.0.1", "--dir", f"{folder}", "--save", "", "--appendonly", "no"]
    broker = await _begun(folder / "redis.out", program, *options)
    try:
        await eventually(lambda: accepts(port), "the broker listens")
        # `terminate` needs the prefork pool. No gossip: this worker has no neighbours.
        options = ["--pool", "prefork", "--concurrency", "2", "--without-gossip", "--without-mingle", "-l", "INFO"]
        celery = [sys.executable, "-m", "celery", "-A", "tests.adapters.celery_app", "worker"]
        worker = await _begun(folder / "worker.out", *celery, *options, env=house.env)
        try:
            await eventually(lambda: "ready." in (folder / "worker.out").read_text(), "the worker is ready")
            yield house
        finally:
            await _end(worker)
    finally:
        await _end(broker)


@pytest.fixture(scope="module")
async def client(house: House) -> AsyncGenerator[Client]:
    async with running(APP, house.folder, env=house.env) as (_, client):
        yield client


def structured(task: JSON) -> JSON:
    return task["result"]["structuredContent"]["result"][0]


async def test_a_result_an_error_a_cancellation_and_what_takes_too_long(house: House, client: Client) -> None:
    """Side by side, since each of them waits for somebody."""
    never = str(house.folder / "never")
    late = await client.start("picture", {"size": "late", "gate": never, "timeout": 5})
    process = await house.process_of("late")
    fine, failed = await asyncio.gather(client.finish("picture", {"size": "small"}), client.finish("hopeless"))
    assert structured(fine) == {"size": "small", "pixels": [1, 2]}
    assert structured(failed) == "ValueError: no such picture"
    assert (house.ran("resize small"), house.ran("broken")) == (1, 1)

    unwanted = await client.start("picture", {"size": "unwanted", "gate": never})
    other = await house.process_of("unwanted")
    await client.cancel(unwanted)
    await client.until(unwanted, "cancelled")
    await eventually(lambda: not alive(other), "what was cancelled goes on")

    assert structured(await client.until(late)) == "TimeoutError: 'resize' did not report in time"
    await eventually(lambda: not alive(process), "what took too long goes on")


async def test_a_celery_task_goes_on_while_the_server_is_killed_and_its_result_is_found_by_the_next_one(
    house: House, tmp_path: Path
) -> None:
    gate = tmp_path / "go"
    server = await start(APP, tmp_path, env=house.env)
    try:
        await server.listening()
        async with connected(server.port) as client:
            task_id = await client.start("picture", {"size": "large", "gate": str(gate)})
            await eventually(lambda: house.ran("resize large") == 1, "no worker took it")
    finally:
        await server.kill()
    gate.touch()
    async with running(APP, tmp_path, env=house.env) as (_, client):
        assert structured(await client.until(task_id)) == {"size": "large", "pixels": [1, 2]}
    assert house.ran("resize large") == 1


SEND_TWICE = """
import sys, time
from perdure import Handle
from perdure.adapters import celery
from tests.adapters.celery_app import app, resize

job, handle = resize.s("twice", sys.argv[2]), Handle.parse(sys.argv[1])
celery.send(job, None, handle)
while app.AsyncResult(celery.job_id(handle)).state == "PENDING":
    time.sleep(0.02)
celery.send(job, None, handle)
"""


async def test_a_job_that_a_worker_has_already_is_not_sent_again(house: House, client: Client, tmp_path: Path) -> None:
    """The server died between sending it and recording that it had."""
    gate = tmp_path / "go"
    sender = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SEND_TWICE, str(HANDLE), str(gate), cwd=ROOT, env={**os.environ, **house.env}
    )
    try:
        async with asyncio.timeout(PATIENCE):
            assert await sender.wait() == 0
    finally:
        if sender.returncode is None:
            sender.kill()
            await sender.wait()
    gate.touch()
    # Whatever was sent before these has been begun by now.
    await asyncio.gather(*(client.finish("picture", {"size": f"later {number}"}) for number in range(4)))
    assert house.ran("resize twice") == 1


# -- without a broker --------------------------------------------------------------------------------------------------


async def test_a_task_that_would_never_give_a_result_is_refused() -> None:
    bare, full = Celery("bare"), Celery("full", backend="redis://127.0.0.1:1/0")

    @full.task(ignore_result=True)
    def silent() -> None: ...

    task = TaskContext.__new__(TaskContext)
    with pytest.raises(ConfigurationError, match="has no result backend"):
        await adapter.run_celery(task, "job", bare.signature("anything"))
    with pytest.raises(ConfigurationError, match="ignore_result"):
        await adapter.run_celery(task, "job", silent.s())


async def test_a_task_whose_start_celery_does_not_tell_is_warned_of_once_since_it_may_be_sent_while_it_runs(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is Celery's default: what runs looks like what nobody has heard of."""
    monkeypatch.setattr(adapter, "_warned", set[str]())
    app = Celery("untold", broker="memory://", backend="cache+memory://")
    signatures = {
        "untold": app.task(name="untold")(_nothing).s(),
        "told": app.task(name="told", track_started=True)(_nothing).s(),
        "far": app.signature("far"),
    }
    tasks = Tasks(MemoryStore())

    @tasks.tool()
    async def have(name: str, task: TaskContext) -> None:
        await adapter.run_celery(task, "job", signatures[name])

    async with Harness(tasks) as harness:
        for name in ("untold", "told", "far", "untold"):
            assert (await harness.call("have", {"name": name})).status == "working"
        app.conf.task_track_started = True
        signatures["known"] = app.signature("known")
        assert (await harness.call("have", {"name": "known"})).status == "working"
    said = [each.getMessage() for each in caplog.records if each.name == adapter.__name__]
    assert [line.partition(" may be run a second time while it runs")[0] for line in said] == [
        "the Celery task untold",
        "the Celery task far",
    ]


def _nothing() -> None: ...


def test_the_id_tells_nothing_of_the_token_and_is_the_same_each_time() -> None:
    job = adapter.job_id(HANDLE)
    assert job == adapter.job_id(Handle.parse(str(HANDLE)))
    assert len(job) == 36
    assert job != adapter.job_id(Handle(HANDLE.task_id, HANDLE.place, "u" * 32))
