"""`perdure worker`: the tasks of a server run in processes that serve nobody, come and go, and are asked to stop."""

import signal
import time
from pathlib import Path
from typing import Final

from perdure import Tasks
from tests.acceptance.support import Server, effect, effects, rows, signalled, store_url
from tests.acceptance.workers import accepting, at_work, crew, greeting, serving, start_worker, working
from tests.support import eventually
from tests.wire import support as wire
from tests.wire.support import Client

HANDED_OVER: Final = (None, 0, 0, 1)
RUN: Final = "SELECT session, failures, deaths, due_at < 0 FROM run"
BY_HAND: Final = """\
from contextlib import asynccontextmanager
from mcp.server.mcpserver import MCPServer
from perdure import TaskContext, Tasks
tasks = Tasks("sqlite:///tasks.db", worker=False)

@tasks.tool()
async def pool(task: TaskContext) -> str:
    return task.lifespan_context["pool"]

@asynccontextmanager
async def lifespan(server):
    async with tasks.lifespan(server):
        yield {"pool": "made by hand"}

mcp = MCPServer("own", extensions=[tasks], middleware=[tasks.middleware], lifespan=lifespan)
"""


def listens(process: Server) -> bool:
    """Whether any socket of the process listens for TCP."""
    state, inode, listening = 3, 9, "0A"
    tables = [Path(f"/proc/{process.pid}/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    inodes = {line.split()[inode] for table in tables for line in table if line.split()[state] == listening}
    held = [path.readlink().name for path in Path(f"/proc/{process.pid}/fd").iterdir() if path.is_symlink()]
    return any(f"socket:[{each}]" in held for each in inodes)


async def test_workers_run_the_tasks_of_a_server_that_runs_none_and_end_in_order(tmp_path: Path) -> None:
    async with crew(tmp_path, "--concurrency", "1", env={"GRACE": "100ms"}) as (one, two):
        async with serving(tmp_path) as (server, client):
            assert listens(server)
            assert not listens(one)
            line = greeting(one)
            assert line.startswith(
                f"perdure: working for fleet on {store_url(tmp_path)}, 1 at once: tools cancellable, "
            )
            assert line.endswith("; queues default, slow")
            done = await client.finish("short", {"label": "state"})
            assert done["result"]["structuredContent"]["pool"] == "of fleet", "the app's own lifespan is there"
            both = [
                await client.start("waiting", {"label": "long", "gate": str(tmp_path / "never")}),
                await client.start("threaded", {"label": "long, and nobody can stop it", "seconds": 3600}),
            ]
            ran = {(await effect(tmp_path, task_id, "start")).pid for task_id in both}
            assert ran == {one.pid, two.pid}, "each took what it had a slot for"
            assert server.pid not in {one.pid for one in effects(tmp_path)}
        assert await one.end(signal.SIGTERM) == await two.end(signal.SIGINT) == 0
        for worker in (one, two):
            assert "perdure: told to stop working for fleet\n" in worker.output.read_text()
            assert "it waits up to 0.1 s for what runs (tasks: 1)" in worker.output.read_text()
    assert rows(tmp_path, RUN) == [HANDED_OVER] * 2
    assert not rows(tmp_path, "SELECT * FROM session")


async def test_a_worker_of_a_server_that_was_made_by_hand_has_its_lifespan_too(tmp_path: Path) -> None:
    """And works, though the program says `worker=False`."""
    (tmp_path / "own.py").write_text(BY_HAND)
    tasks = Tasks(store_url(tmp_path), worker=False)

    @tasks.tool()
    async def pool() -> str:
        return "of another process"

    async with wire.serving(tasks.server("other")) as (http, url), working(tmp_path, app=f"{tmp_path / 'own.py'}:mcp"):
        done = await Client(http, url).finish("pool")
        assert done["result"]["content"][0]["text"] == "made by hand"


async def test_a_worker_serves_the_queues_that_it_is_told_to(tmp_path: Path) -> None:
    async with accepting(tmp_path) as client:
        async with working(tmp_path, "--queue", "slow=1") as worker:
            left = await client.start("short", {"label": "of the default queue"})
            await client.finish("slow", {"label": "of the slow one"})
            assert greeting(worker).endswith(": tools slow; queues slow=1")
        assert (await client.get(left)).result["status"] == "working"
        assert not effects(tmp_path, left)


async def test_a_second_signal_ends_a_worker_at_once(tmp_path: Path) -> None:
    async with accepting(tmp_path) as client:
        worker = await at_work(tmp_path, await start_worker(tmp_path, env={"GRACE": "10m"}))
        try:
            task_id = await client.start("waiting", {"label": "long", "gate": str(tmp_path / "never")})
            await effect(tmp_path, task_id, "start")

            def told_again() -> bool:
                if worker.alive:
                    signalled(worker.process, signal.SIGTERM)
                return not worker.alive

            started = time.monotonic()
            await eventually(told_again, "it ends")
            assert worker.process.returncode == -signal.SIGTERM
            assert time.monotonic() - started < 60, "long before its grace period is over"
        finally:
            if worker.alive:
                await worker.kill()
