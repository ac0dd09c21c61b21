"""The interposed library does to a process what it was told, where it was told to, and counts it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos.interposer import Interposer, interposed

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="the system has no gcc")

CHILD = """
import errno, os, sys, time
store, other = (os.open(path, os.O_RDWR | os.O_CREAT) for path in sys.argv[1:])
def failure(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
def seconds(call, *arguments):
    before = time.monotonic()
    call(*arguments)
    return time.monotonic() - before
for line in sys.stdin:
    print(repr(eval(line)), flush=True)
"""


class Child:
    """A process under the library. `store` and `other` are files of it, below the store's folder and beside it."""

    def __init__(self, folder: Path, interposer: Interposer) -> None:
        below = folder / "store"
        below.mkdir()
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, below / "file", folder / "file"],
            env={**os.environ, **interposer.environment(below)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def eval(self, code: str) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(code + "\n")
        self.process.stdin.flush()
        return eval(self.process.stdout.readline())


@pytest.fixture
def interposer(tmp_path: Path) -> Iterator[Interposer]:
    with interposed(tmp_path) as built:
        assert isinstance(built, Interposer), built
        yield built


@pytest.fixture
def child(tmp_path: Path, interposer: Interposer) -> Iterator[Child]:
    child = Child(tmp_path, interposer)
    with child.process:
        yield child
        child.process.kill()


@pytest.mark.parametrize("offset", [3600, -3600])
def test_the_wall_clock_is_shifted_and_the_monotonic_one_is_not(
    child: Child, interposer: Interposer, offset: int
) -> None:
    wall, monotonic = child.eval("(time.time(), time.monotonic())")
    interposer.set("clock_offset_ns", offset * 10**9)
    later, later_monotonic = child.eval("(time.time(), time.monotonic())")
    assert later - wall - offset == pytest.approx(later_monotonic - monotonic, abs=5)
    assert later_monotonic >= monotonic
    assert abs(child.eval("time.time_ns() / 1e9 - time.time()")) < 5
    assert interposer.read("clock_reads") > 0


def test_a_file_of_the_store_can_not_grow_on_a_full_disk_and_others_can(child: Child, interposer: Interposer) -> None:
    assert child.eval("os.pwrite(store, bytes(10), 0)") == 10
    interposer.set("disk_is_full", 1)
    assert child.eval("failure(os.pwrite, store, bytes(11), 0)") == "ENOSPC"
    assert child.eval("failure(os.ftruncate, store, 11)") == "ENOSPC"
    assert child.eval("failure(os.write, store, bytes(11))") == "ENOSPC"
    assert child.eval("os.pwrite(store, bytes(10), 0)") == 10
    assert child.eval("os.pwrite(other, bytes(99), 0)") == 99
    assert interposer.read("writes_refused") == 3
    interposer.set("disk_is_full", 0)
    assert child.eval("os.pwrite(store, bytes(11), 0)") == 11


def test_fsync_is_slow_on_the_store_and_nowhere_else(child: Child, interposer: Interposer) -> None:
    interposer.set("fsync_delay_us", 300_000)
    assert child.eval("seconds(os.fsync, store)") >= 0.3
    assert child.eval("seconds(os.fdatasync, store)") >= 0.3
    assert child.eval("failure(os.fsync, other)") is None
    assert interposer.read("fsyncs_delayed") == 2


def test_each_nth_fsync_fails_on_the_store_and_nowhere_else(child: Child, interposer: Interposer) -> None:
    interposer.set("fsync_fails_every", 2)
    failures = child.eval("[failure(os.fsync, store) for _ in range(4)]")
    assert failures.count("EIO") == failures.count(None) == 2
    assert child.eval("[failure(os.fsync, other) for _ in range(4)]") == [None] * 4
    assert interposer.read("fsyncs_failed") == 2


def test_a_process_that_can_not_read_its_orders_does_not_run(tmp_path: Path, interposer: Interposer) -> None:
    environment = {**os.environ, **interposer.environment(tmp_path), "CHAOS_CONTROL": str(tmp_path / "nothing")}
    ended = subprocess.run([sys.executable, "-c", ""], env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 70
    assert "CHAOS_CONTROL" in ended.stderr
