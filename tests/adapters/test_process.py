"""A command as a job: run once, by real processes, whatever happens to the server and to whom."""

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from perdure import ConfigurationError, Handle, InvalidDuration, TaskContext, Tasks
from perdure.adapters import child, process
from perdure.adapters.process import ProcessResult, run_process
from perdure.ops.options import STORE
from perdure.store.keys import KEYS, KEYS_FILE
from perdure.store.memory import MemoryStore
from perdure.testing import Harness, crash_everywhere
from tests.acceptance.support import connected, running, start
from tests.support import PATIENCE, eventually
from tests.wire.envelopes import JSON
from tests.wire.support import Stage, stage

SERVER = Path(__file__).with_name("job_server.py")
HANDLE = Handle("tsk_" + "a" * 32, "3.0/1", "t" * 32)


def alive(pid: int) -> bool:
    """Whether a process runs. One that nobody has asked about yet is dead, and only still listed."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZXx"
    except (FileNotFoundError, ProcessLookupError):
        return False


def sh(script: str) -> list[str]:
    return ["sh", "-c", script]


class Jobs:
    """A server of one tool that runs whatever it is told to, and where it leaves what it has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.options: dict[str, Any] = {}
        self.scene: Stage

    def declare(self, tasks: Tasks) -> None:
        tasks.tool(poll_interval="50ms")(self.job)

    async def job(self, command: list[str], task: TaskContext) -> dict[str, Any]:
        options: dict[str, Any] = {"folder": self.folder, "poll": "100ms"} | self.options
        result = await run_process(task, "job", command, **options)
        return {**asdict(result), "ok": result.ok}

    async def run(self, *commands: list[str]) -> list[JSON]:
        """What came of the commands, run side by side."""
        finish = self.scene.client.finish
        tasks = await asyncio.gather(*(finish("job", {"command": command}) for command in commands))
        return [json.loads(task["result"]["content"][0]["text"]) for task in tasks]

    def record(self, name: str) -> list[Path]:
        """The files of that name in the folders of all jobs."""
        return sorted(self.folder.glob(f"*/*/{name}"))

    async def written(self, name: str, content: str = "") -> Path:
        """The only job's file of that name, once it has that in it."""
        await eventually(lambda: any(content in each.read_text() for each in self.record(name)), f"no {name}")
        (path,) = self.record(name)
        return path

    async def started(self) -> dict[str, Any]:
        return json.loads((await self.written(child.STARTED)).read_text())


@pytest.fixture
async def jobs(tmp_path: Path) -> AsyncGenerator[Jobs]:
    jobs = Jobs(tmp_path / "jobs")
    async with stage(tmp_path, jobs.declare) as jobs.scene:
        yield jobs
    for path in jobs.record(child.STARTED):
        with suppress(KeyError, ProcessLookupError):
            os.killpg(json.loads(path.read_text())["pid"], signal.SIGKILL)


# -- what comes of it --------------------------------------------------------------------------------------------------


async def test_how_a_command_ended_is_the_result(jobs: Jobs) -> None:
    commands = [
        sh("echo out; echo err >&2; exit 3"),
        ["true"],
        sh("kill -9 $$"),
        ["no-such-program"],
        [str(jobs.folder.parent)],
        ["tr\x00ue"],
    ]
    some, fine, signalled, missing, folder, bad = await jobs.run(*commands)
    assert (some["exit_status"], some["stdout_tail"], some["stderr_tail"]) == (3, "out\n", "err\n")
    assert [path.read_text() for path in jobs.record(child.STDOUT) if str(path) == some["stdout"]] == ["out\n"]
    assert (fine["exit_status"], fine["stdout_tail"], fine["ok"]) == (0, "", True)
    assert signalled["exit_status"] == -9
    assert (missing["exit_status"], folder["exit_status"], bad["exit_status"]) == (127, 126, 126)
    assert "no-such-program" in missing["stderr_tail"]
    assert not any(each["ok"] or each["timed_out"] for each in (some, signalled, missing, folder, bad))


async def test_a_command_has_no_input_the_servers_environment_and_a_folder_of_its_own(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GREETING", "höflich")
    ((cat), (told)) = await jobs.run(["cat"], sh("echo $GREETING; pwd; id -u"))
    assert (cat["exit_status"], cat["stdout_tail"]) == (0, "")
    greeting, where, _ = told["stdout_tail"].splitlines()
    assert (greeting, Path(where)) == ("höflich", Path(told["stdout"]).parent)
    assert os.stat(where).st_mode & 0o077 == 0  # noqa: PTH116


async def test_the_keys_the_url_and_the_password_of_the_store_are_none_of_a_commands_business(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (KEYS, KEYS_FILE, STORE, "PERDURE_WHATEVER", "PGPASSWORD"):
        monkeypatch.setenv(name, "secret")
    # Nor of what minds the command, its parent, which outlives the server.
    (told,) = await jobs.run(sh('env; tr "\\0" "\\n" < /proc/$PPID/environ'))
    assert told["stdout_tail"].count("PATH=") >= 2
    assert "secret" not in told["stdout_tail"]


async def test_environment_and_folder_may_be_given(jobs: Jobs, tmp_path: Path) -> None:
    jobs.options = {"env": {"ONLY": "this", "PATH": os.environ["PATH"]}, "cwd": tmp_path}
    (told,) = await jobs.run(sh('echo "$ONLY $HOME"; pwd'))
    assert told["stdout_tail"] == f"this \n{tmp_path}\n"


async def test_of_long_output_the_end_goes_along_and_all_of_it_stays(jobs: Jobs) -> None:
    (result,) = await jobs.run(sh("yes 0123456789 | head -n 10000; printf '\\377'"))
    (path,) = jobs.record(child.STDOUT)
    assert path.stat().st_size == 110_001
    assert len(result["stdout_tail"]) == 4096
    assert result["stdout_tail"].endswith("0123456789\n\ufffd")


async def test_a_command_ends_when_its_time_is_up_and_so_does_what_it_started(jobs: Jobs) -> None:
    jobs.options = {"timeout": "500ms", "cleanup": "500ms"}
    obedient, deaf, orphaned = await jobs.run(
        sh("sleep 1000 & echo $!; wait"),
        sh("trap '' TERM; sleep 1000 & echo $!; wait; wait; sleep 1000"),
        sh("(trap '' TERM; exec sleep 1000) & echo $!; wait"),
    )
    assert (obedient["timed_out"], obedient["exit_status"], obedient["ok"]) == (True, -15, False)
    assert (deaf["timed_out"], deaf["exit_status"]) == (True, -9)
    assert (orphaned["timed_out"], orphaned["exit_status"]) == (True, -15)
    for each in (obedient, deaf, orphaned):
        pid = int(each["stdout_tail"])
        await eventually(lambda pid=pid: not alive(pid), "it is still there")


@pytest.mark.parametrize(
    ("options", "command", "error", "message"),
    [
        ({"folder": "jobs"}, ["true"], ConfigurationError, "folder is 'jobs': write an absolute path"),
        ({}, [], ConfigurationError, "command is the program and its arguments"),
        ({}, "true", ConfigurationError, "command is the program and its arguments"),
        ({"timeout": 0}, ["true"], InvalidDuration, "timeout"),
    ],
)
async def test_what_can_not_work_is_said_before_anything_is_begun(
    options: dict[str, Any], command: Any, error: type[Exception], message: str, tmp_path: Path
) -> None:
    options = {"folder": tmp_path} | options
    with pytest.raises(error, match=message):
        await run_process(TaskContext.__new__(TaskContext), "job", command, **options)


# -- once --------------------------------------------------------------------------------------------------------------


def job(script: str) -> dict[str, Any]:
    return {"command": sh(script), "cwd": None, "env": dict(os.environ), "timeout": None, "cleanup": 5, "beat": 0.05}


def result(base: Path) -> ProcessResult | None:
    found = process.look(base, HANDLE)
    if found is None:
        return None
    assert isinstance(found.result, ProcessResult)
    return found.result


async def test_of_several_that_were_started_for_one_job_one_runs_the_command(tmp_path: Path) -> None:
    """A server that died before it could record that it had started one is followed by another that does not know."""
    folder = process.folder_of(tmp_path, HANDLE)
    folder.mkdir(parents=True)
    where = {"folder": str(folder), "cwd": str(tmp_path)}
    told = json.dumps(job("echo ran >> log; sleep 0.2") | where).encode()

    def launch(_: int) -> int:
        program = [sys.executable, "-I", "-S", str(process.CHILD)]
        return subprocess.run(program, input=told, check=False, timeout=30).returncode

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(launch, range(4))) == [0] * 4
    process.start(tmp_path, job("echo ran twice >> log"), HANDLE)
    await eventually(lambda: result(tmp_path) is not None, "it did not end")
    assert (tmp_path / "log").read_text() == "ran\n"
    assert sorted(path.name for path in folder.iterdir()) == ["started", "status", "stderr", "stdout"]


def test_a_job_that_was_given_up_before_it_began_does_not_begin(tmp_path: Path) -> None:
    process.stop(tmp_path, HANDLE)
    process.start(tmp_path, job("echo ran > log"), HANDLE)
    process.stop(tmp_path, HANDLE)
    assert not (tmp_path / "log").exists()
    lost = result(tmp_path)
    assert lost is not None
    assert lost.exit_status is None


def test_a_folder_that_can_not_be_written_to_fails_the_start(tmp_path: Path) -> None:
    folder = process.folder_of(tmp_path, HANDLE)
    folder.mkdir(parents=True)
    (folder / child.STDOUT).mkdir()
    with pytest.raises(OSError, match=r"(?s)The job could not be started: .*IsADirectoryError"):
        process.start(tmp_path, job("true"), HANDLE)
    (folder / child.STDOUT).rmdir()
    process.start(tmp_path, job("true"), HANDLE)


async def test_stopping_what_is_over_is_nothing(tmp_path: Path) -> None:
    process.start(tmp_path, job("exit 5"), HANDLE)
    await eventually(lambda: result(tmp_path) is not None, "it did not end")
    process.stop(tmp_path, HANDLE)
    over = result(tmp_path)
    assert over is not None
    assert (over.exit_status, over.timed_out) == (5, False)


async def test_wherever_a_worker_dies_the_command_runs_once(tmp_path: Path) -> None:
    plays = itertools.count()

    def make(**crash: Any) -> Harness:
        jobs = Jobs(tmp_path / f"{next(plays)}")
        tasks = Tasks(MemoryStore())
        jobs.declare(tasks)
        made.append(jobs)
        return Harness(tasks, **crash)

    made: list[Jobs] = []

    async def scenario(harness: Harness) -> None:
        jobs = made[-1]
        task = await harness.call("job", {"command": sh("echo ran >> ../log; echo told")})
        await jobs.written(child.STATUS)
        await harness.advance("1s")
        assert (await harness.look(task)).value["stdout_tail"] == "told\n"
        (log,) = jobs.folder.glob("*/log")
        assert log.read_text() == "ran\n"

    assert await crash_everywhere(make, scenario) >= 12


SLOW = """
import runpy, sys, time
from pathlib import Path

folder = Path({folder!r})
(folder / "waits").touch()
while not (folder / "go").exists():
    time.sleep(0.01)
runpy.run_path({program!r}, run_name="__main__")
"""
"""A start of a job that takes as long as somebody likes."""
KILLED = """
import os, runpy, signal
try:
    runpy.run_path({program!r}, run_name="__main__")
except SystemExit:
    os.kill(os.getpid(), signal.SIGKILL)
"""
"""One that is killed as soon as the job is somebody's."""
STARTING = """
import json, signal, sys
from pathlib import Path
from perdure import Handle
from perdure.adapters import process

signal.signal(signal.SIGINT, lambda *_: None)  # a server ends in its own time
process.CHILD = Path({slow!r})
process.start(Path({base!r}), json.loads(sys.argv[1]), Handle.parse(sys.argv[2]))
"""


async def test_a_signal_to_the_servers_process_group_does_not_reach_a_job_that_is_being_started(tmp_path: Path) -> None:
    """Ctrl-C is told to all of the group, and what had just begun would be on record as failed for good."""
    base, slow = tmp_path / "jobs", tmp_path / "slow.py"
    slow.write_text(SLOW.format(folder=str(tmp_path), program=str(process.CHILD)))
    program = STARTING.format(slow=str(slow), base=str(base))
    told = json.dumps(job("echo ran >> ../../../log"))
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, told, str(HANDLE), start_new_session=True
    )
    try:
        await eventually((tmp_path / "waits").exists, "it is not being started")
        os.killpg(server.pid, signal.SIGINT)
        (tmp_path / "go").touch()
        async with asyncio.timeout(PATIENCE):
            assert await server.wait() == 0
    finally:
        with suppress(ProcessLookupError):
            server.kill()
        await server.wait()
    await eventually(lambda: result(base) is not None, "it did not end")
    assert (tmp_path / "log").read_text() == "ran\n"


def test_a_start_of_which_nobody_can_say_how_it_ended_is_one_if_the_job_is_somebodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What starts it may be killed when the job has begun already."""
    killed = tmp_path / "killed.py"
    killed.write_text(KILLED.format(program=str(process.CHILD)))
    monkeypatch.setattr(process, "CHILD", killed)
    process.start(tmp_path, job("true"), HANDLE)


# -- seen by others ----------------------------------------------------------------------------------------------------


async def test_nobody_else_on_the_machine_sees_the_key_to_a_task_that_has_a_job(jobs: Jobs) -> None:
    """Arguments of processes are there for all to see, and the base may be a folder that all may list."""
    jobs.folder.mkdir(mode=0o755)
    task_id = await jobs.scene.client.start("job", {"command": sh("echo $$; exec sleep 1000")})
    await jobs.written(child.STDOUT, "\n")
    watcher = (await jobs.started())["pid"]
    words = await asyncio.to_thread(Path(f"/proc/{watcher}/cmdline").read_text)
    assert "child.py" in words
    assert task_id not in words
    assert [each.name for each in jobs.folder.iterdir() if task_id in each.name] == []
    await jobs.scene.client.cancel(task_id)


def test_the_folders_that_are_made_for_a_job_are_its_users_alone(tmp_path: Path) -> None:
    for base, begin in (
        (tmp_path / "begun", partial(process.start, job=job("true"))),
        (tmp_path / "not", process.stop),
    ):
        begin(base, handle=HANDLE)
        folder = process.folder_of(base, HANDLE)
        assert [each.stat().st_mode & 0o077 for each in (base, folder.parent, folder)] == [0, 0, 0]


# -- killed ------------------------------------------------------------------------------------------------------------


async def test_a_job_that_was_killed_together_with_its_watcher_is_noticed(jobs: Jobs) -> None:
    running_job = asyncio.create_task(jobs.run(sh("echo $$; exec sleep 1000")))
    await jobs.written(child.STDOUT, "\n")
    os.killpg((await jobs.started())["pid"], signal.SIGKILL)
    ((told,)) = await running_job
    assert (told["exit_status"], told["timed_out"], told["ok"]) == (None, False, False)


async def test_a_job_whose_watcher_alone_was_killed_is_ended(jobs: Jobs) -> None:
    running_job = asyncio.create_task(jobs.run(sh("echo $$; exec sleep 1000")))
    pid = int((await jobs.written(child.STDOUT, "\n")).read_text())
    os.kill((await jobs.started())["pid"], signal.SIGKILL)
    (told,) = await running_job
    assert told["exit_status"] is None
    await eventually(lambda: not alive(pid), "it is still there")


@pytest.mark.parametrize("change", [{"started": 1}, {"pid": 1 << 22}], ids=["a reused number", "no such process"])
def test_a_record_that_fits_no_process_is_of_a_job_that_is_gone_and_harms_nobody(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    bystander = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        record = child.here() | {"pid": bystander.pid, "started": child.started_at(bystander.pid)}
        folder = process.folder_of(tmp_path, HANDLE)
        folder.mkdir(parents=True)
        assert child.claim(folder, record | change)
        lost = result(tmp_path)
        assert lost is not None
        assert lost.exit_status is None
        process.stop(tmp_path, HANDLE)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.parametrize(
    "change", [{"host": "elsewhere"}, {"boot": "another"}], ids=["another container", "before a reboot, or a namesake"]
)
def test_a_job_that_can_not_be_seen_from_here_is_dead_once_it_is_silent(tmp_path: Path, change: dict[str, Any]) -> None:
    folder = process.folder_of(tmp_path, HANDLE)
    folder.mkdir(parents=True)
    assert child.claim(folder, child.here() | {"pid": os.getpid(), "started": 1} | change)
    assert result(tmp_path) is None
    process.stop(tmp_path, HANDLE)
    silent = time.time() - 90
    os.utime(folder / child.STARTED, (silent, silent))
    lost = result(tmp_path)
    assert lost is not None
    assert lost.exit_status is None


async def test_a_job_gives_signs_of_life(tmp_path: Path) -> None:
    process.start(tmp_path, job("sleep 1000"), HANDLE)
    started = process.folder_of(tmp_path, HANDLE) / child.STARTED
    first = started.stat().st_mtime_ns
    await eventually(lambda: started.stat().st_mtime_ns > first, "it gives none")
    process.stop(tmp_path, HANDLE)
    await eventually(lambda: result(tmp_path) is not None, "it did not end")


# -- cancelled ---------------------------------------------------------------------------------------------------------


async def test_a_cancelled_task_ends_the_whole_process_group_and_gives_it_time_for_its_cleanup(jobs: Jobs) -> None:
    script = "trap 'sleep 0.2; echo cleaned > cleanup; exit 1' TERM; sleep 1000 & echo $!; wait"
    task_id = await jobs.scene.client.start("job", {"command": sh(script)})
    sleeper = int((await jobs.written(child.STDOUT, "\n")).read_text())
    watcher = (await jobs.started())["pid"]
    await jobs.scene.client.cancel(task_id)
    await jobs.scene.client.until(task_id, "cancelled")
    await eventually(lambda: not alive(sleeper) and not alive(watcher), "it is still there")
    assert (await jobs.written("cleanup")).read_text() == "cleaned\n"


async def test_what_the_command_started_has_its_time_for_its_cleanup_though_the_command_itself_ends_at_once(
    jobs: Jobs,
) -> None:
    """A shell dies of the signal; what it runs has a file to finish. Nobody waits for longer than for that."""
    jobs.options = {"cleanup": "1h"}
    script = "(trap 'sleep 0.3; echo cleaned > cleanup; exit' TERM; echo up; sleep 1000 & wait) & wait"
    task_id = await jobs.scene.client.start("job", {"command": sh(script)})
    await jobs.written(child.STDOUT, "up\n")
    watcher = (await jobs.started())["pid"]
    await jobs.scene.client.cancel(task_id)
    await eventually(lambda: not alive(watcher), "it is still there")
    assert (await jobs.written("cleanup")).read_text() == "cleaned\n"


# -- restarted ---------------------------------------------------------------------------------------------------------


def has(path: Path) -> bool:
    return path.exists() and path.read_text() != ""


def structured(task: JSON) -> JSON:
    return json.loads(task["result"]["content"][0]["text"])


async def test_jobs_go_on_while_their_server_is_killed_and_the_next_one_finds_them(tmp_path: Path) -> None:
    """One goes on until after the restart; the other one's time is up while no server runs."""
    patient = f"echo ran >> {tmp_path}/log; until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo done; exit 4"
    endless = f"echo $$ > {tmp_path}/pid; exec sleep 1000"
    env = {"JOBS": str(tmp_path / "jobs")}
    server = await start(SERVER, tmp_path, env=env)
    try:
        await server.listening()
        async with connected(server.port) as client:
            first = await client.start("job", {"command": sh(patient)})
            second = await client.start("job", {"command": sh(endless), "timeout": 2})
            pid = tmp_path / "pid"
            await eventually(lambda: (tmp_path / "log").exists() and has(pid), "they did not begin")
    finally:
        await server.kill()
    await eventually(lambda: not alive(int(pid.read_text())), "its time was not up")
    (tmp_path / "go").touch()
    async with running(SERVER, tmp_path, env=env) as (_, client):
        assert structured(await client.until(first)) == {"exit_status": 4, "timed_out": False, "stdout": "done\n"}
        assert structured(await client.until(second)) == {"exit_status": -15, "timed_out": True, "stdout": ""}
    assert (tmp_path / "log").read_text() == "ran\n"
