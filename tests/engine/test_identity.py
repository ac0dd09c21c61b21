"""Whether a neighbour's process is gone: certain, or left to the lease."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from perdure.domain.model import JSON, JSONObject
from perdure.engine.lease import gone, identity
from tests.support import eventually

UNKNOWABLE = 2**80
"""No process id at all."""


@contextlib.contextmanager
def child() -> Generator[tuple[subprocess.Popen[bytes], JSONObject]]:
    """A process that lives, and its identity."""
    code = "import json, sys; from perdure.engine.lease import identity; print(json.dumps(identity()), flush=True)"
    command = [sys.executable, "-c", f"{code}; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        info = json.loads(process.stdout.readline())
        try:
            yield process, info
        finally:
            process.kill()


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_this_process_is_not_gone() -> None:
    assert not gone(identity())


def test_an_identity_says_where_its_process_lives() -> None:
    me = identity()
    assert me["pid"] == os.getpid()
    assert None not in me.values()
    assert identity() == me


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"host": "elsewhere"}, False),
        ({"host": None}, False),
        ({"boot": "another"}, False),  # another machine of the same name; or this one, before it was restarted
        ({"boot": None}, False),
        ({"pids": "pid:[1]"}, False),  # another container's: its process ids say nothing here
        ({"pids": None}, False),
        ({"pid": None}, False),
        ({"pid": "1"}, False),
        ({"pid": UNKNOWABLE}, False),
        ({"started": 1}, True),  # the same process id, given to another process
        ({"started": None}, False),
    ],
    ids=str,
)
def test_a_record_that_differs_is_gone_only_where_that_is_certain(changed: JSONObject, expected: bool) -> None:
    assert gone(identity() | changed) is expected


@pytest.mark.parametrize("field", ["host", "boot", "pids", "pid", "started"])
def test_a_record_that_lacks_something_is_left_to_the_lease(field: str) -> None:
    info: dict[str, JSON] = {key: value for key, value in identity().items() if key != field}
    assert not gone(info)


async def test_a_process_is_gone_once_it_is_killed_even_before_its_parent_asks_about_it() -> None:
    with child() as (process, info):
        assert not gone(info)
        process.kill()
        await eventually(lambda: state(process.pid) == "Z", "the process did not die")
        assert gone(info)
        process.wait()
        assert gone(info)


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A /proc that says what the test wants. At first it shows no process, as it may hide those of other users."""
    real, shown = Path("/proc"), tmp_path / "proc"
    (shown / "sys/kernel/random").mkdir(parents=True)
    (shown / "sys/kernel/random/boot_id").write_bytes((real / "sys/kernel/random/boot_id").read_bytes())
    (shown / "self/ns").mkdir(parents=True)
    (shown / "self/ns/pid").symlink_to((real / "self/ns/pid").readlink())
    monkeypatch.setattr("perdure.engine.lease._PROC", shown)
    return shown


def test_a_process_that_lives_but_is_hidden_is_left_to_the_lease(proc: Path) -> None:
    assert not gone(identity() | {"started": 1})


@pytest.mark.parametrize(("threads", "expected"), [(1, True), (2, False)])
def test_a_process_is_dead_only_when_its_last_thread_is(proc: Path, threads: int, expected: bool) -> None:
    fields = ["0"] * 50
    fields[0], fields[17], fields[19] = "Z", str(threads), "77"
    (proc / str(os.getpid())).mkdir()
    (proc / str(os.getpid()) / "stat").write_text(f"{os.getpid()} (a) name (Z) {' '.join(fields)}\n")
    me = identity()
    assert me["started"] == 77
    assert gone(me) is expected


def test_where_nobody_knows_the_boot_a_missing_process_is_left_to_the_lease(proc: Path) -> None:
    """As in a sandbox whose /proc lacks it: its like may run on many machines, under one name."""
    (proc / "sys/kernel/random/boot_id").unlink()
    me = identity()
    assert me["boot"] is None
    assert not gone(me | {"pid": dead_process()})


@pytest.mark.parametrize(
    ("card", "known"),
    [(0x0242AC110002, "0242ac110002"), (0x0342AC110002, None)],
    ids=["a card of the machine", "none, and a number that was drawn"],
)
def test_without_proc_a_missing_process_is_gone_if_it_was_on_this_machine_and_any_other_is_left_to_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, card: int, known: str | None
) -> None:
    monkeypatch.setattr("perdure.engine.lease._PROC", tmp_path / "none")
    monkeypatch.setattr("perdure.engine.lease.getnode", lambda: card)
    me = identity()
    assert (me["boot"], me["pids"], me["started"]) == (known, None, None)
    assert not gone(me)
    assert gone(me | {"pid": dead_process()}) is (known is not None)
    assert not gone(me | {"pid": dead_process(), "boot": "0242ac110003"})


def dead_process() -> int:
    with child() as (process, _):
        process.kill()
        process.wait()
        return process.pid


def test_a_container_of_another_machine_with_the_same_name_and_pids_is_left_to_the_lease() -> None:
    """Both are called the same, both are in the first pid namespace, and what runs there has no such process here."""
    there = identity() | {"boot": "7e57d004-2b97-0e7a-b45f-5387367791cd", "pid": dead_process()}
    assert not gone(there)
    assert gone(there | {"boot": identity()["boot"]}), "the boot alone made the difference"
