"""`perdure demo`, which is also what `make demo` runs: a task outlives a SIGKILL before one's eyes."""

import asyncio
import json
import os
import re
import sqlite3
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.acceptance.support import exists, rows

SIX_LINES = """\
id=0 resultType=complete status=ack
id=1 resultType=task status=working
id=2 resultType=complete status=working
id=3 resultType=complete status=input_required
id=4 resultType=complete status=ack
id=5 resultType=complete status=completed
"""

NOWHERE = {"HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9", "ALL_PROXY": "socks5://127.0.0.1:9"}
"""Proxies such as companies have: this one gets nobody anywhere."""


@dataclass
class Demo:
    """A demo that was run, and what lay in its store meanwhile."""

    status: int
    group: int
    output: str
    complaints: str
    folder: Path
    workers: list[int] = field(default_factory=list[int])
    """The process ids of the workers, in order of appearance."""


async def run_demo(tmp_path: Path) -> Demo:
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("perdure"),
        "demo",
        env={**os.environ, **NOWHERE, "TMPDIR": str(tmp_path)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    demo = Demo(-1, process.pid, "", "", tmp_path)
    finished = asyncio.create_task(process.communicate())
    try:
        async with asyncio.timeout(55):
            while not finished.done():
                watch(demo)
                await asyncio.sleep(0.01)
            output, complaints = await finished
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    (demo.folder,) = folders(tmp_path)
    demo.status, demo.output, demo.complaints = process.returncode or 0, output.decode(), complaints.decode()
    return demo


def folders(temporary: Path) -> list[Path]:
    return list(temporary.glob("perdure-demo-*"))


def watch(demo: Demo) -> None:
    """One look into the store of a demo that runs."""
    for folder in folders(demo.folder):
        with suppress(sqlite3.OperationalError):  # not made yet
            for (info,) in rows(folder, "SELECT info FROM session"):
                if (pid := json.loads(info)["pid"]) not in demo.workers:
                    demo.workers.append(pid)


def it_prints_its_six_lines_first_and_succeeds(demo: Demo) -> None:
    assert demo.status == 0, demo.complaints
    assert demo.output.startswith(SIX_LINES)
    assert not demo.complaints


def an_account_follows_in_words_and_names_the_task_and_the_file(demo: Demo) -> None:
    account = demo.output.removeprefix(SIX_LINES)
    told = re.findall(r"^id=(\d)  ([\w/]+): \S", account, re.MULTILINE)
    methods = ["server/discover", "tools/call", "tasks/get", "tasks/get", "tasks/update", "tasks/get"]
    assert told == [(str(number), method) for number, method in enumerate(methods)]
    assert re.search(r"killed \(SIGKILL\).* A new one was up \d+\.\d s later", account)
    assert 'the tool asks "Approve this outline? ' in account
    assert "tasks/get: completed" in account
    ((task_id,),) = rows(demo.folder, "SELECT id FROM task")
    assert task_id in account
    store = re.search(r"store: (.*)", account)
    assert store is not None
    assert Path(store[1]) == demo.folder / "tasks.db"


def the_report_has_the_approved_outline(demo: Demo) -> None:
    ((status, result),) = rows(demo.folder, "SELECT status, result FROM task")
    assert status == "completed"
    report = json.loads(result)
    assert report["structuredContent"] == {"size": "large", "approved": True}
    assert report["content"][0]["text"] in demo.output


def a_second_server_took_the_task_over_from_the_killed_one(demo: Demo) -> None:
    assert len(demo.workers) == 2
    events = rows(demo.folder, "SELECT kind, detail FROM event")
    assert events == [("death", "1 of 10")], "the killed server held the task"
    assert (demo.folder / "server.log").read_text().count("took over 1 run of dead workers") == 1
    ((created, updated),) = rows(demo.folder, "SELECT created_at, updated_at FROM task")
    assert updated > created
    assert not rows(demo.folder, "SELECT * FROM session"), "the second server ended in order"
    assert not rows(demo.folder, "SELECT * FROM run")


def every_process_that_the_demo_started_is_gone(demo: Demo) -> None:
    with pytest.raises(ProcessLookupError):
        os.killpg(demo.group, 0)
    assert not any(exists(pid) for pid in demo.workers)


async def test_the_demo_shows_a_task_that_outlives_a_sigkill_and_asks_no_proxy_the_way(tmp_path: Path) -> None:
    """One run for all that there is to see of it: a demo takes its time."""
    demo = await run_demo(tmp_path)
    it_prints_its_six_lines_first_and_succeeds(demo)
    an_account_follows_in_words_and_names_the_task_and_the_file(demo)
    the_report_has_the_approved_outline(demo)
    a_second_server_took_the_task_over_from_the_killed_one(demo)
    every_process_that_the_demo_started_is_gone(demo)
