"""Servers in processes of their own, and what the kernel says that they use. Linux: it reads /proc."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "Server", "serving", "stop"]

ROOT = Path(__file__).resolve().parents[1]
_STOP_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class Server:
    """A server of `bench.servers` that runs."""

    pid: int
    port: int

    def cpu_seconds(self) -> float:
        """Processor time that all its threads have used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        """Its resident memory now."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise ProcessLookupError(self.pid)

    def open_handles(self) -> int:
        """Files, sockets and pipes that it has open now."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))


@contextlib.contextmanager
def serving(*arguments: str) -> Generator[Server]:
    """Run `python -m bench.servers` with these arguments for the length of the block."""
    command = [sys.executable, "-m", "bench.servers", *arguments]
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        try:
            # The server says its port once it listens; a request that comes before it accepts waits in the backlog.
            port = process.stdout.readline() if process.stdout else ""
            if not port.strip():
                raise RuntimeError(f"the server exited with {process.wait()} before it listened")
            yield Server(process.pid, int(port))
        except BaseException:
            log.seek(0)
            sys.stderr.write(log.read(20_000))
            raise
        finally:
            stop(process)


def stop(process: subprocess.Popen[Any]) -> None:
    """End a process in order, or else by SIGKILL."""
    process.terminate()
    try:
        process.wait(_STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
