"""A program that has loaded Perdure and waits: each request makes a copy of it, which becomes the program asked for.

    python -m tests.mould    its standard input is a socket, from which it reads `copies.Request`s until that is closed

A copy is a process like any other, with a memory, files, signals and an end of its own; it only begins where others
have come to after 0.7 seconds of processor time. Nothing runs here that a copy could inherit: no thread, no loop.
"""

import faulthandler
import fcntl
import gc
import importlib
import json
import os
import runpy
import selectors
import socket
import sys
import termios
from collections.abc import Mapping
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Final, cast

LOADED: Final = (
    "perdure.ops.program",
    "perdure.ops.cli",
    "perdure.ops.app",
    "perdure.ops.ending",
    "perdure.ops.gateway",
    "perdure.ops.keeping",
    "perdure.ops.operating",
    "perdure.ops.serve",
    "perdure.ops.serving",
    "perdure.ops.calling.commands",
    "perdure.client",
    "perdure.store.postgres",
    "hypothesis",
    "pytest",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.h11_impl",
)
_LARGEST: Final = 1_000_000
_HANDLES: Final = 4
_INPUT, _OUTPUT, _ERRORS, _TOLD = range(_HANDLES)
"""The handles that come with a request: those of the program, and a pipe that is told its id and how it ended."""
_PATH: Final = sys.path[1:]


def mould(asked: socket.socket) -> Mapping[str, object] | None:
    """Make copies until nobody asks any more. Returns in each copy as well: what it is asked to be."""
    running: dict[int, tuple[int, int]] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(asked, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd in running:
                    selector.unregister(key.fd)
                    _report(key.fd, *running.pop(key.fd))
                    continue
                request, handles, *_ = socket.recv_fds(asked, _LARGEST, _HANDLES)
                if not request:
                    return None
                pid = os.fork()
                if not pid:
                    _take(handles)
                    return json.loads(request)
                os.write(handles[_TOLD], f"{pid}\n".encode())
                for handle in handles[:_TOLD]:
                    os.close(handle)
                end = os.pidfd_open(pid)
                running[end] = (pid, handles[_TOLD])
                selector.register(end, selectors.EVENT_READ)


def _report(end: int, pid: int, told: int) -> None:
    """Tell how a copy ended, as `subprocess` has it. Whoever asked may be gone."""
    _, status = os.waitpid(pid, 0)
    with suppress(BrokenPipeError):
        os.write(told, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os.close(told)
    os.close(end)


def _take(handles: list[int]) -> None:
    """In a copy: the program's standard handles, and no others."""
    for standard, handle in enumerate(handles[:_TOLD]):
        os.dup2(handle, standard)
    os.closerange(_TOLD, os.sysconf("SC_OPEN_MAX"))


def become(arguments: list[str], folder: str, environment: dict[str, str], *, controlled: bool) -> None:
    """Run `python [-u] SCRIPT …`, `-m MODULE …`, `-c CODE …` or `perdure …`, as Python does; `-u` goes by lines.

    `controlled`: by the terminal that is its input.
    """
    if controlled:
        os.setsid()
        fcntl.ioctl(_INPUT, termios.TIOCSCTTY, 0)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if environment.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    program, *rest = arguments
    unbuffered = rest[:1] == ["-u"]
    del rest[:unbuffered]
    cast("TextIOWrapper", sys.stdout).reconfigure(line_buffering=unbuffered or os.isatty(_OUTPUT))
    if program != sys.executable:
        sys.argv, sys.path[:] = arguments, [str(Path(program).parent), *_PATH]
        sys.modules["__main__"].__package__ = None  # which tells click how it was started
        importlib.import_module("perdure.ops.program").program()
    elif rest[0] == "-c":
        sys.argv, sys.path[:] = ["-c", *rest[2:]], ["", *_PATH]
        exec(compile(rest[1], "<string>", "exec"), vars(sys.modules["__main__"]))
    elif rest[0] == "-m":
        sys.argv, sys.path[:] = rest[1:], [folder, *_PATH]
        runpy.run_module(rest[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[:] = rest, [str(Path(folder, rest[0]).resolve().parent), *_PATH]
        runpy.run_path(rest[0], run_name="__main__")


def main() -> None:
    for name in LOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    asked = socket.socket(fileno=os.dup(0))
    request = mould(asked)
    if request is not None:
        asked.detach()
        become(**request)  # pyright: ignore[reportArgumentType]


if __name__ == "__main__":
    main()
