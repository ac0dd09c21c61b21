"""Programs of ours that start at once: copies of a process that has loaded Perdure (`tests.mould`).

For tests in which programs are killed, stopped and refused, and nothing depends on how their Python came up. What
Python does itself, a whole start under load, or a path of modules of its own is not what a copy shows: tests of those,
and the official ones, start a program anew.
"""

import asyncio
import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

from tests.support import PATIENCE

ROOT: Final = Path(__file__).resolve().parents[1]
PERDURE: Final = str(Path(sys.executable).with_name("perdure"))


class Copy:
    """A program that was started, with what tests use of `asyncio.subprocess.Process` and of `subprocess.Popen`."""

    stdin: asyncio.StreamWriter | None = None
    stdout: asyncio.StreamReader | None = None
    stderr: asyncio.StreamReader | None = None

    def __init__(self, told: int) -> None:
        self._told = told
        self._heard = b""
        self._returncode: int | None = None
        self.pid = int(self._line(PATIENCE) or 0)
        assert self.pid, "the mould is gone"

    @property
    def returncode(self) -> int | None:
        """How it ended, as `subprocess` has it; None while it runs."""
        if self._returncode is None and (line := self._line(0)) is not None:
            self._returncode = int(line)
            os.close(self._told)
        return self._returncode

    async def wait(self) -> int:
        """Wait for its end: how that was."""
        while self.returncode is None:  # noqa: ASYNC110 - by another process
            await asyncio.sleep(0.005)
        assert self._returncode is not None
        return self._returncode

    async def communicate(self, said: bytes = b"") -> tuple[bytes, bytes]:
        """Say that and no more, and wait for its end: what it said, and what it complained of."""
        assert self.stdin is not None
        self.stdin.write(said)
        self.stdin.close()
        assert self.stdout is not None
        assert self.stderr is not None
        output, errors = await asyncio.gather(self.stdout.read(), self.stderr.read())
        await self.wait()
        return output, errors

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, how: signal.Signals) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it has ended, and nobody has told us yet
                os.kill(self.pid, how)

    def _line(self, within: float) -> bytes | None:
        """What was told next; none yet, or none any more, if the mould is gone."""
        while b"\n" not in self._heard:
            ready, _, _ = select.select([self._told], [], [], within)
            if not ready:
                return None
            read = os.read(self._told, 100)
            assert read, "the mould is gone"
            self._heard += read
        line, _, self._heard = self._heard.partition(b"\n")
        return line


def start(
    command: Sequence[str | Path],
    *,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    input: int = subprocess.DEVNULL,
    output: int = subprocess.DEVNULL,
    errors: int = subprocess.DEVNULL,
    controlled: bool = False,
) -> Copy:
    """Start `python [-u] SCRIPT …`, `-m MODULE …`, `-c CODE …` or `perdure …`; what it reads and writes are open files.

    `controlled`: by the terminal that is its input, in a session of its own.
    """
    arguments = [str(word) for word in command]
    assert arguments[0] in (sys.executable, PERDURE), f"no program of ours: {arguments}"
    environment = dict(os.environ if env is None else env)
    assert environment.get("PYTHONPATH") == os.environ.get("PYTHONPATH"), "it would not find what it is to load"
    request = {"arguments": arguments, "folder": str(cwd), "environment": environment, "controlled": controlled}
    nothing = os.open(os.devnull, os.O_RDWR)
    told, tells = os.pipe()
    handles = [*(nothing if each == subprocess.DEVNULL else each for each in (input, output, errors)), tells]
    try:
        socket.send_fds(_mould(), [json.dumps(request).encode()], handles)
    finally:
        os.close(nothing)
        os.close(tells)
    return Copy(told)


@asynccontextmanager
async def talking(
    command: Sequence[str | Path],
    *,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    errors: int = subprocess.PIPE,
    limit: int = 1 << 16,
) -> AsyncGenerator[Copy]:
    """A program of ours at the other end of pipes, as `asyncio` has it; killed at the end, unless it has ended.

    `errors`: where it complains, if not into a pipe of its own. `limit`: of a line, in bytes.
    """
    (reads, speaks), (hears, writes) = os.pipe(), os.pipe()
    minds, complains = os.pipe() if errors == subprocess.PIPE else (None, None)
    where = writes if errors == subprocess.STDOUT else errors if complains is None else complains
    try:
        copy = start(command, cwd=cwd, env=env, input=reads, output=writes, errors=where)
    finally:
        for handle in (reads, writes, complains):
            if handle is not None:
                os.close(handle)
    async with AsyncExitStack() as pipes:
        copy.stdin = await _writer(pipes, speaks)
        copy.stdout = await _reader(pipes, hears, limit)
        copy.stderr = None if minds is None else await _reader(pipes, minds, limit)
        try:
            yield copy
        finally:
            copy.kill()
            await copy.wait()


async def _writer(pipes: AsyncExitStack, handle: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    flow = asyncio.StreamReaderProtocol(asyncio.StreamReader())  # it reads nothing, and knows when a writer has to wait
    transport, _ = await loop.connect_write_pipe(lambda: flow, os.fdopen(handle, "wb", 0))
    pipes.callback(transport.close)
    return asyncio.StreamWriter(transport, flow, None, loop)


async def _reader(pipes: AsyncExitStack, handle: int, limit: int) -> asyncio.StreamReader:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit)
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(handle, "rb", 0)
    )
    pipes.callback(transport.close)
    return reader


@dataclass(frozen=True)
class Ended:
    """A program that has ended. `output`, `errors`: all that it wrote."""

    code: int
    output: str
    errors: str


async def ended(
    command: Sequence[str | Path], *, cwd: Path = ROOT, env: Mapping[str, str] | None = None, within: float = PATIENCE
) -> Ended:
    """Run a program of ours to its end."""
    with TemporaryFile() as output, TemporaryFile() as errors:
        program = start(command, cwd=cwd, env=env, output=output.fileno(), errors=errors.fileno())
        try:
            async with asyncio.timeout(within):
                return Ended(await program.wait(), written(output), written(errors))
        finally:
            program.kill()


def written(file: IO[bytes]) -> str:
    """What a program wrote to a file that was opened for it."""
    file.seek(0)
    return file.read().decode()


@cache
def _mould() -> socket.socket:
    """The mould of this process of tests: started for the first who needs it, and gone with this process."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.mould"], cwd=ROOT, stdin=its.fileno(), stdout=subprocess.DEVNULL
    )
    its.close()

    def end() -> None:
        ours.close()
        process.wait(PATIENCE)

    atexit.register(end)
    return ours
