"""A command as external work: a process that goes on while the server is killed, restarted or replaced.

The command runs under a small process of its own (`child`), detached from the server, which leaves in a folder who it
is and how it ended. So whichever server has the task next finds the job again, or what came of it, and there is never a
second one. The folder belongs to one machine: workers that run such tools have to live on it.

Detached is not out of reach. A container takes all its processes along when it stops; systemd does when it stops a
service, unless the unit says `KillMode=process`.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from perdure.domain.errors import ConfigurationError
from perdure.domain.handles import Handle
from perdure.domain.ids import abbreviated
from perdure.domain.policy import Duration, milliseconds
from perdure.engine.lease import gone
from perdure.tools.context import TaskContext
from perdure.tools.external import Finished

from . import child

__all__ = ["CHILD", "ProcessResult", "folder_of", "look", "run_process", "start", "stop"]

CHILD: Final = Path(child.__file__)
_TAIL: Final = 4096
"""Bytes of each output that are kept with the result."""
_BEAT: Final = 10.0
_SILENT: Final = 60.0
"""Seconds between signs of life, which count where a job can't be seen, and after how many without one it is dead."""
_BACKSTOP_MS: Final = 30_000
"""What passes once its time and its cleanup, which the child keeps, are over before nobody waits for it any more."""


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """How a job ended.

    `exit_status`: as the command gave it; the number of a signal, negative, if one ended it; 127 if there is no such
    command, 126 if it can't be run; None if nobody knows, since it was killed together with what watched it, or its
    folder is gone. `timed_out`: it was ended because its time was up. `stdout` and `stderr` are files on the machine
    that it ran on, which stay until you delete them; `…_tail` is the end of each, 4 KiB at most.
    """

    exit_status: int | None
    timed_out: bool
    stdout: Path
    stderr: Path
    stdout_tail: str
    stderr_tail: str

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with exit status 0."""
        return self.exit_status == 0 and not self.timed_out


async def run_process(
    task: TaskContext,
    name: str,
    command: Sequence[str | os.PathLike[str]],
    *,
    folder: str | os.PathLike[str],
    timeout: Duration | None = None,  # noqa: ASYNC109 - of the job, which no cancel scope reaches
    cleanup: Duration = "5s",
    poll: Duration = "1s",
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
) -> ProcessResult:
    """Run a command as a job that outlives this server, and wait for its end without holding anything in memory.

    The command is started once, whatever crashes. It gets no input. If the task is cancelled, or its time is up, the
    command and what it started get SIGTERM, and after a while SIGKILL. How the command ends is the result and no
    error, so look at it.

    Args:
        task: the tool's context.
        name: of the job, for the journal; other jobs may have the same.
        command: the program and its arguments; no shell reads them.
        folder: where each job gets a folder of its own, for its output and its state. An absolute path, the same at
            each start of the server.
        timeout: how long the command may run, from its start on; kept also while no server runs.
        cleanup: the time between SIGTERM and SIGKILL, for the command and for what it started.
        poll: how soon to look for the first time. The looks get rarer, down to one in five minutes.
        cwd: the command's working folder; the job's own by default.
        env: its whole environment; the server's by default, without `PERDURE_…` and `PGPASSWORD`, which hold the keys,
            the URL and the password of its store.

    Raises:
        StepFailed: it could not be started, for a reason that lies in the folder or the machine; or, long after its
            timeout, nobody has heard of it (type "TimeoutError").
        ConfigurationError: `folder` is relative, or `command` is empty or a bare string.
        InvalidDuration: a duration is unreadable, zero or negative.
    """
    base = Path(folder)
    if not base.is_absolute():
        raise ConfigurationError(
            f"folder is {str(base)!r}: write an absolute path, which stays the same after a restart"
        )
    if isinstance(command, str) or not command:
        raise ConfigurationError("command is the program and its arguments, as a list")
    limit_ms = None if timeout is None else milliseconds(timeout, what="timeout")
    cleanup_ms = milliseconds(cleanup, what="cleanup")
    job = {
        "command": [os.fspath(word) for word in command],
        "cwd": None if cwd is None else os.fspath(cwd),
        "env": dict(_environment() if env is None else env),
        "timeout": None if limit_ms is None else limit_ms / 1000,
        "cleanup": cleanup_ms / 1000,
        "beat": _BEAT,
    }
    return await task.external(
        name,
        partial(start, base, job),
        cancel=partial(stop, base),
        poll=partial(look, base),
        every=poll,
        timeout=None if limit_ms is None else (limit_ms + cleanup_ms + _BACKSTOP_MS) / 1000,
        returns=ProcessResult,
    )


def _environment() -> dict[str, str]:
    """The server's, without what only the server has a use for: the keys, the URL and the password of its store."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith("PERDURE_") and name != "PGPASSWORD"
    }


# What the verb is given. All of these run in threads, and any of them may be called again.


def start(base: Path, job: dict[str, Any], handle: Handle) -> None:
    """Start the job, unless an earlier run did, which then could not record it.

    Raises:
        OSError: it could not be started; nothing has begun.
    """
    folder = _made(base, handle)
    if (folder / child.STARTED).exists():
        return
    told = json.dumps(job | {"folder": str(folder), "cwd": job["cwd"] or str(folder)}).encode()
    # What minds the job outlives the server, and needs its keys no more than the job does. Nor is it in the server's
    # process group, to all of which Ctrl-C is told: the server has time for its end, and this would die at once.
    begun = subprocess.run(  # noqa: S603
        [sys.executable, "-I", "-S", str(CHILD)],
        input=told,
        env=_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        check=False,
    )
    # What was killed can't say whether the job is somebody's by now.
    if begun.returncode and not (folder / child.STARTED).exists():
        raise OSError(f"The job could not be started: {begun.stderr.decode(errors='replace')[-1000:].strip()}")


def look(base: Path, handle: Handle) -> Finished | None:
    """How the job ended; None while it goes on."""
    folder = folder_of(base, handle)
    status = _read(folder / child.STATUS)
    if status is None:
        started = _read(folder / child.STARTED)
        if started is not None and "pid" in started and _goes_on(folder, started):
            return None
        status = _read(folder / child.STATUS)  # it may have ended between the two looks
        if status is None:
            _sweep(started)
    out, err = folder / child.STDOUT, folder / child.STDERR
    known = status or {"exit_status": None, "timed_out": False}
    result = ProcessResult(known["exit_status"], known["timed_out"], out, err, _tail(out), _tail(err))
    return Finished(result)


def stop(base: Path, handle: Handle) -> None:
    """Give the job up, whether it goes on, has ended, or has not begun, which it then never will."""
    folder = _made(base, handle)
    if child.claim(folder, {"cancelled": True}):
        return  # it had not begun, and can't any more
    started = _read(folder / child.STARTED)
    if started is None or (folder / child.STATUS).exists():
        return
    if gone(started):
        _sweep(started)
    elif "pid" in started and _is_here(started):
        with suppress(ProcessLookupError):
            os.kill(started["pid"], signal.SIGTERM)


def _goes_on(folder: Path, started: dict[str, Any]) -> bool:
    if gone(started):
        return False
    if all(started.get(key) == value for key, value in child.here().items()):
        return True
    # It runs on another machine or in another container, or it did and that is no more. Both times are the folder's.
    now = folder / "now"
    now.touch()
    return now.stat().st_mtime - (folder / child.STARTED).stat().st_mtime < _SILENT


def _sweep(started: dict[str, Any] | None) -> None:
    """End what is left of a job whose watcher was killed: nobody would hear how it ends."""
    if started is None or "pid" not in started or not _is_here(started):
        return
    # A process group keeps its number from being used again for as long as it has members.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(started["pid"], signal.SIGKILL)


def _is_here(started: dict[str, Any]) -> bool:
    """Whether the record is of this very machine since its boot, and its number is not another process's by now."""
    if any(started.get(key) != value for key, value in child.here().items()):
        return False
    try:
        # Without /proc nothing tells a process from a later one; but few lead a session, as every watcher does.
        leads = os.getsid(started["pid"]) == started["pid"]
    except ProcessLookupError:
        return True
    return leads and child.started_at(started["pid"]) == started["started"]


def folder_of(base: Path, handle: Handle) -> Path:
    """The job's own, in its task's. An id or a token is a key, and folders are listed: digests name them as well.

    A task's is found by the beginning of its id, as logs have it.
    """
    task = f"{abbreviated(handle.task_id).removesuffix('…')}-{_digest(handle.task_id)}"
    return base / task / f"{handle.place.replace('/', '-')}-{_digest(handle.token)}"


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()[:16]


def _made(base: Path, handle: Handle) -> Path:
    folder = folder_of(base, handle)
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in (folder.parent, folder):
        each.mkdir(mode=0o700, exist_ok=True)
    return folder


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return cast("dict[str, Any]", json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            return file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
