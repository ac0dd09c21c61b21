"""What stands between a server and a job of its own: a process that runs the command and outlives the server.

    python -I -S child.py < JOB

    JOB: {"folder": …, "command": […], "cwd": …, "env": …, "timeout": seconds or null, "cleanup": seconds,
          "beat": seconds}

It is run by its path and imports the standard library only, so that it starts at once and stays small: it lives as long
as the job. Its arguments tell nothing of the job, since every user of the machine sees them. What it has to tell, it
leaves in the folder, each file whole or not at all:

    started         who it is; touched every `beat`, for who can't see from where they are whether it lives
    stdout, stderr  what the command wrote
    status          how it ended; missing, and nobody there any more: it was killed

`started` is made by a link, which succeeds once. So of two that were started for one job (by a server that died before
it could record the first) only one runs the command, and a server that gives a job up before it began can take the
place itself.

The command is in its process group, and so is whatever that starts. SIGTERM to the child, or the timeout, ends the
group: SIGTERM to all, some time for their cleanup, SIGKILL to what is left, itself included. The command may end before
what it started does (a shell dies at once), so the time is everybody's.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any, NoReturn

__all__ = ["STARTED", "STATUS", "STDERR", "STDOUT", "claim", "here", "started_at"]

STARTED = "started"
STATUS = "status"
STDOUT = "stdout"
STDERR = "stderr"

_TRIES = 3600
"""How often it tries to say how the command ended, a second apart."""
_PAUSE = 0.05
"""Seconds between its looks whether anybody is left."""
_NOT_FOUND, _NOT_RUNNABLE = 127, 126
"""Exit statuses as shells have them."""


# -- who it is ---------------------------------------------------------------------------------------------------------


def here() -> dict[str, Any]:
    """Where a process of ours lives, as `engine/lease.py` reads it; what the system does not tell is None."""
    return {"host": socket.gethostname(), "boot": _boot(), "pids": _pid_namespace()}


def started_at(pid: int) -> int | None:
    """When a process began, in clock ticks since the boot; None without it, or without /proc."""
    stat = _stat(pid)
    return None if stat is None else int(stat[19])


def _stat(pid: int) -> list[str] | None:
    """What Linux says of a process: from its state on, behind its name, which may hold anything."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
    except OSError:
        return None
    return stat.rpartition(")")[2].split()


def _boot() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return None


def _pid_namespace() -> str | None:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None


def claim(folder: Path, record: dict[str, Any]) -> bool:
    """Make `started`, with `record` in it from the first moment. Returns whether it was not there before."""
    draft = _written(folder / f"{STARTED}.{os.getpid()}", record)
    try:
        (folder / STARTED).hardlink_to(draft)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    return True


def _written(path: Path, record: dict[str, Any]) -> Path:
    with path.open("w") as file:
        json.dump(record, file)
        file.flush()
        os.fsync(file.fileno())
    return path


# -- running the command -----------------------------------------------------------------------------------------------


class _Told(Exception):
    """It is to end."""


class _TimeUp(_Told):
    """Because its time is."""


def main(folder: Path, job: dict[str, Any]) -> None:
    """Fork a process that is its own session's, has the job, and runs it. Returns once the job is somebody's."""
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        # A byte: it goes on by itself. None: it died, and has said why.
        sys.exit(0 if os.read(reading, 1) else 1)
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _tell)
    os.chdir(folder)  # it must not hold on to wherever the server lay
    out, err = (folder / STDOUT).open("ab"), (folder / STDERR).open("ab")
    # Last of what may fail: from here on the job is this process's or nobody's.
    ours = claim(folder, {**here(), "pid": os.getpid(), "started": started_at(os.getpid())})
    _redirect(out, err)
    os.write(writing, b"1")
    os.close(writing)
    if ours:
        _run(folder, job, out, err)


def _redirect(out: IO[bytes], err: IO[bytes]) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (out.fileno(), 1), (err.fileno(), 2)):
        os.dup2(source, target)


def _run(folder: Path, job: dict[str, Any], out: IO[bytes], err: IO[bytes]) -> None:
    try:
        _beat(folder, job["beat"], job["timeout"])
        process = subprocess.Popen(  # noqa: S603 - what the server was told to run
            job["command"], stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=job["cwd"], env=job["env"]
        )
    except (OSError, ValueError) as error:
        err.write(f"{error}\n".encode(errors="replace"))
        err.flush()
        _finish(folder, _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_RUNNABLE)
        return
    except _Told as told:
        # Whether the command has begun nobody can tell at this point, so what there is of the group ends at once.
        _finish(folder, None, timed_out=isinstance(told, _TimeUp))
        os.killpg(0, signal.SIGKILL)
        raise
    try:
        _finish(folder, process.wait())
    except _Told as told:
        _end(folder, process, job["cleanup"], timed_out=isinstance(told, _TimeUp))


def _end(folder: Path, process: subprocess.Popen[bytes], cleanup: float, *, timed_out: bool) -> NoReturn:
    """Have the whole group end, and end with it."""
    os.killpg(0, signal.SIGTERM)
    over = time.monotonic() + cleanup
    try:
        status = process.wait(cleanup)
    except subprocess.TimeoutExpired:
        status = -signal.SIGKILL
    while _has_others() and time.monotonic() < over:
        time.sleep(_PAUSE)
    _finish(folder, status, timed_out=timed_out)
    os.killpg(0, signal.SIGKILL)
    sys.exit(1)


def _has_others() -> bool:
    """Whether anybody else in the process group is alive; without /proc nobody can tell, and so it may be."""
    own, group = os.getpid(), os.getpgrp()
    if _stat(own) is None:
        return True
    others = (_stat(int(each.name)) for each in Path("/proc").glob("[0-9]*") if int(each.name) != own)
    return any(stat is not None and int(stat[2]) == group and stat[0] not in "ZXx" for stat in others)


def _finish(folder: Path, exit_status: int | None, *, timed_out: bool = False) -> None:
    for _ in range(_TRIES):
        try:
            draft = _written(folder / f"{STATUS}.draft", {"exit_status": exit_status, "timed_out": timed_out})
            draft.replace(folder / STATUS)
        except FileNotFoundError:  # somebody deleted the folder
            return
        except OSError:  # a full disk, which somebody may clear
            time.sleep(1)
        else:
            return


def _deafen() -> None:
    """From now on it ends by itself. Not SIG_IGN, which whatever is started then would inherit."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, _hear_nothing)


def _hear_nothing(_number: int, _frame: FrameType | None) -> None: ...


def _tell(_number: int, _frame: FrameType | None) -> None:
    _deafen()
    raise _Told


def _beat(folder: Path, every: float, timeout: float | None) -> None:
    """Touch `started` now and then, and end when the time is up: by a signal, which no wait for the command misses."""
    deadline = None if timeout is None else time.monotonic() + timeout

    def wake(_number: int, _frame: FrameType | None) -> None:
        left = every if deadline is None else deadline - time.monotonic()
        if left <= 0:
            _deafen()
            raise _TimeUp
        with suppress(OSError):  # somebody deleted the folder; the command may end all the same
            os.utime(folder / STARTED)
        signal.setitimer(signal.ITIMER_REAL, min(every, left))

    signal.signal(signal.SIGALRM, wake)
    signal.setitimer(signal.ITIMER_REAL, every if timeout is None else min(every, timeout))


if __name__ == "__main__":
    told = json.load(sys.stdin)
    main(Path(told["folder"]), told)
