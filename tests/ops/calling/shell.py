"""Commands in the test's own process, without a terminal, against a server in a thread beside it.

To start the program takes longer than most of what it does. Whatever needs a terminal, signals, pipes or a process of
its own is tested with that: see `terminal`.
"""

import json
import sqlite3
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from anyio.from_thread import BlockingPortal, start_blocking_portal
from click.testing import CliRunner

from perdure import Tasks
from perdure.client import Journal
from perdure.ops.calling import book
from perdure.ops.cli import main
from tests.client.spy import Spy
from tests.support import eventually
from tests.wire.support import Stage, stage
from tests.wire.tools import Tools

JSON = Any
UNSET: Final = ("PERDURE_JOURNAL", "PERDURE_TOKEN", "PERDURE_TOKEN_FILE", "NO_COLOR")


def run(
    *words: str, folder: Path, code: int = 0, input: str = "", env: Mapping[str, str] | None = None
) -> tuple[str, str]:
    """A command: what it printed, and what it said beside that. The journal is in `folder`."""
    surroundings: dict[str, str | None] = {**dict.fromkeys(UNSET), "XDG_STATE_HOME": str(folder), **(env or {})}
    done = CliRunner().invoke(main, words, prog_name="perdure", input=input, env=surroundings)
    assert done.exit_code == code, (done.output, done.exception)
    assert "\x1b" not in done.output
    return done.stdout, done.stderr


def statuses(scene: Stage) -> list[tuple[str, str]]:
    """The ids of all tasks, and how they stand."""
    with closing(sqlite3.connect(f"file:{scene.database}?mode=ro", uri=True)) as connection:
        return connection.execute("SELECT id, status FROM task").fetchall()


@contextmanager
def journal_in(folder: Path) -> Generator[Journal]:
    """The journal of commands that are run with this folder."""
    (folder / "perdure").mkdir(exist_ok=True)
    with closing(book.opened(str(folder / "perdure" / "handles.db"))) as journal:
        yield journal


@dataclass(frozen=True)
class Shell:
    """Runs commands with a journal of their own, against one server, whose `tools` and `spy` live in another thread."""

    scene: Stage
    folder: Path
    spy: Spy
    tools: Tools
    portal: BlockingPortal

    @property
    def url(self) -> str:
        return self.scene.client.url

    def __call__(self, *words: str, code: int = 0, input: str = "", **env: str) -> tuple[str, str]:
        return run(*words, folder=self.folder, code=code, input=input, env=env)

    def call(self, *words: str, code: int = 0, **env: str) -> tuple[str, str]:
        return self("call", self.url, *words, code=code, **env)

    def document(self, *words: str, code: int = 0) -> JSON:
        return json.loads(self(*words, "--json", code=code)[0])

    def detached(self, *words: str) -> str:
        return self.call(*words, "--detach")[0].strip()

    @contextmanager
    def journal(self) -> Generator[Journal]:
        """The one that its commands have."""
        with journal_in(self.folder) as journal:
            yield journal

    def broken_off(self, tool: str, key: str) -> None:
        """Put a call on record that was broken off before its answer was known."""
        with self.journal() as journal:
            journal.let_go(journal.intend(self.url, tool, key, {})[0])

    def open_gate(self) -> None:
        self.portal.call(self.tools.gate.set)

    def once_asked(self) -> str:
        """The task that asks something, once one does."""
        found: list[str] = []

        def asks() -> bool:
            found.extend(task for task, status in statuses(self.scene) if status == "input_required")
            return bool(found)

        self.portal.call(eventually, asks, "it asks")
        return found[0]


@contextmanager
def shell_of(folder: Path, declare: Callable[[Tasks], None] = lambda _: None) -> Generator[Shell]:
    """A server with the tools of the wire tests, and with those that `declare` declares."""
    tools, spy = Tools(), Spy()

    def all_of_them(tasks: Tasks) -> None:
        tools.declare(tasks)
        declare(tasks)

    with start_blocking_portal() as portal:
        up = stage(folder, all_of_them, server={"middleware": [spy]})
        with portal.wrap_async_context_manager(up) as scene:
            yield Shell(scene, folder, spy, tools, portal)
