"""A short storm, as a user has one: real processes, real faults, a verdict, and nothing left behind."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import PATIENCE

ROOT = Path(__file__).resolve().parents[2]


def command(folder: Path, *options: str) -> list[str]:
    where = ["--folder", str(folder), "--keep", str(folder / "kept")]
    return [sys.executable, "-m", "chaos", *where, *options]


def left_behind(folder: Path) -> Iterator[str]:
    """Processes, mounts and files that a storm in `folder` should have taken away."""
    yield from (line for line in Path("/proc/mounts").read_text().splitlines() if str(folder) in line)
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has just ended
            continue
        if f"sqlite:///{folder}" in words:
            yield words
    yield from map(str, folder.glob("chaos-*"))


@pytest.mark.slow
@pytest.mark.timeout(240)  # three servers start twice or more, on a machine that others use
def test_a_short_storm_finds_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    options = ["--minutes", "0.1", "--faults", "6", "--rate", "6", "--seed", "5", "--no-mount", "--workers", "1"]
    ended = subprocess.run(
        command(tmp_path, *options), cwd=ROOT, capture_output=True, text=True, timeout=200, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "oracle: nothing found" in ended.stdout
    assert re.search(r"^faults +[1-6] of 6 planned$", ended.stdout, re.MULTILINE), ended.stdout
    created = re.search(r"^tasks created +(\d+)", ended.stdout, re.MULTILINE)
    assert created is not None
    assert int(created[1]) > 5
    assert not list(left_behind(tmp_path))
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_storm_leaves_nothing(tmp_path: Path, how: signal.Signals) -> None:
    options = ["--servers", "1", "--workers", "1"]
    with subprocess.Popen(command(tmp_path, *options), cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "--seed" in process.stderr.readline()
        assert "2 processes are up" in process.stderr.readline()
        assert list(left_behind(tmp_path))
        process.send_signal(how)
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 130
    assert not list(left_behind(tmp_path))
