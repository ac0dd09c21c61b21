"""What a log says that nothing explains is found; what a storm explains is not."""

from pathlib import Path

import pytest

from chaos.logs import OF_OURS, OF_POSTGRESQL, Known, oddities


def found(folder: Path, known: Known, *lines: str) -> list[str]:
    log = folder / "a.log"
    log.write_text("".join(f"{line}\n" for line in lines))
    return list(oddities(log, known, ["hunter2"]))


def test_a_secret_is_found_wherever_it_stands(tmp_path: Path) -> None:
    lines = "INFO perdure: all is well", "INFO perdure: on postgresql://ada:hunter2@db/tasks"
    assert found(tmp_path, OF_OURS, *lines) == ["a.log:2 tells a secret"]


@pytest.mark.parametrize(
    "line",
    [
        "2026-01-01 00:00:00.000Z CRITICAL perdure.engine.runtime: the worker crashed; beginning anew in 1 s",
        "2026-01-01 00:00:00.000Z ERROR perdure.store.postgres.lanes: The task store failed",
        "asyncpg.exceptions.DeadlockDetectedError: deadlock detected",
        "Task exception was never retrieved",
        "<string>:1: RuntimeWarning: coroutine 'f' was never awaited",
    ],
)
def test_what_no_storm_explains_is_found(tmp_path: Path, line: str) -> None:
    assert found(tmp_path, OF_OURS, line) == [f"a.log:1 says {line!r}"]


def test_a_lost_lease_is_no_wonder(tmp_path: Path) -> None:
    said = "ERROR perdure.engine.worker: the lease lapsed; what runs here is left to other workers (tasks: 2)"
    assert not found(tmp_path, OF_OURS, said, "2026-01-01 00:00:00.000Z WARNING perdure: whatever")


def test_of_the_server_a_deadlock_counts_and_a_timeout_does_not(tmp_path: Path) -> None:
    timeout = "2026-01-01 00:00:00 UTC [1] chaos@chaos perdure ERROR:  canceling statement due to lock timeout"
    deadlock = "2026-01-01 00:00:00 UTC [1] chaos@chaos perdure ERROR:  deadlock detected"
    fatal = "2026-01-01 00:00:00 UTC [1] chaos@chaos perdure FATAL:  the database system is starting up"
    assert found(tmp_path, OF_POSTGRESQL, timeout, deadlock, fatal) == [f"a.log:2 says {deadlock!r}"]


def test_a_log_that_nobody_wrote_says_nothing(tmp_path: Path) -> None:
    assert not list(oddities(tmp_path / "none.log", OF_OURS, []))
