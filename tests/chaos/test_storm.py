"""A short storm, as a user has one: real processes, real faults, a verdict, and nothing left behind."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import copies
from tests.support import PATIENCE

ROOT = Path(__file__).resolve().parents[2]


def environment(folder: Path) -> dict[str, str]:
    """Marked, so that whoever inherits it can be found."""
    return {**os.environ, "CHAOS_TEST": str(folder)}


def command(folder: Path, *options: str) -> list[str]:
    where = ["--folder", str(folder), "--keep", str(folder / "kept")]
    return [sys.executable, "-m", "chaos", *where, *options]


def left_behind(folder: Path, *, besides: int = 0) -> Iterator[str]:
    """Processes, mounts and files that a storm in `folder` should have taken away; not the process `besides`."""
    yield from (line for line in Path("/proc/mounts").read_text().splitlines() if str(folder) in line)
    for path in Path("/proc").glob("[0-9]*"):
        try:
            marked = f"CHAOS_TEST={folder}\0".encode() in (path / "environ").read_bytes()
            words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has just ended, or is somebody else's
            continue
        if marked and path.name != str(besides):
            yield words
    yield from map(str, folder.glob("chaos-*"))


@pytest.mark.slow
@pytest.mark.timeout(240)  # servers start twice or more, on a machine that others use
@pytest.mark.parametrize(
    ("store", "faults", "options"),
    [
        ("sqlite", 6, ["--seed", "5", "--no-mount", "--minutes", "0.15"]),
        # The server is stopped and restarted among them.
        ("postgresql", 4, ["--seed", "1489", "--servers", "1", "--minutes", "0.1"]),
    ],
)
def test_a_short_storm_finds_nothing_and_leaves_nothing(
    tmp_path: Path, store: str, faults: int, options: list[str]
) -> None:
    options += ["--store", store, "--faults", str(faults), "--rate", "6", "--workers", "1"]
    ended = asyncio.run(copies.ended(command(tmp_path, *options), env=environment(tmp_path), within=200))
    assert ended.code == 0, ended.output + ended.errors
    assert "oracle: nothing found" in ended.output
    assert re.search(rf"^faults +[1-{faults}] of {faults} planned$", ended.output, re.MULTILINE), ended.output
    created = re.search(r"^tasks created +(\d+)", ended.output, re.MULTILINE)
    assert created is not None
    assert int(created[1]) > 5
    assert not list(left_behind(tmp_path))
    assert not (tmp_path / "kept").exists()


@pytest.mark.timeout(180)  # for the same reason
@pytest.mark.parametrize(
    ("store", "how"), [("sqlite", signal.SIGINT), ("sqlite", signal.SIGTERM), ("postgresql", signal.SIGTERM)]
)
async def test_an_interrupted_storm_leaves_nothing(tmp_path: Path, store: str, how: signal.Signals) -> None:
    options = command(tmp_path, "--store", store, "--servers", "1", "--workers", "1")
    async with copies.talking(options, env=environment(tmp_path)) as storm:
        assert storm.stderr is not None
        assert b"--seed" in await storm.stderr.readline()
        assert b"2 processes are up" in await storm.stderr.readline()
        assert list(left_behind(tmp_path, besides=storm.pid))
        storm.send_signal(how)
        async with asyncio.timeout(PATIENCE):
            assert await storm.wait() == 130
    assert not list(left_behind(tmp_path))
