"""The options of the commands that serve and work, and of programs that end in `perdure.serve`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from perdure.domain.errors import InvalidDuration
from perdure.domain.policy import milliseconds

__all__ = [
    "LEVELS",
    "LOG_LEVEL",
    "STORE",
    "Duration",
    "log_level",
    "named_store",
    "served_queues",
    "serving",
    "store",
    "store_of_routes",
    "working",
]

CommandT = TypeVar("CommandT", bound=Callable[..., None])


class Duration(click.ParamType[int]):
    """A length of time, in milliseconds: `30s`, `15m`, `2 hours`."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """As click has it."""
        try:
            return value if isinstance(value, int) else milliseconds(value)
        except InvalidDuration as error:
            self.fail(str(error), param, ctx)


STORE: Final = "PERDURE_STORE"
"""The environment variable for the store's URL, of all commands alike. What many processes share is best said in one
place, and arguments of a process are there for all users of the machine to see."""

store = click.option(
    "--store", envvar=STORE, show_envvar=True, help="Store URL, instead of what the program says: sqlite:///tasks.db"
)

store_of_routes = click.option(
    "--store", envvar=STORE, show_envvar=True, help="Store URL, instead of what CONFIG says: sqlite:///routes.db"
)

named_store = click.option(
    "--store", required=True, envvar=STORE, show_envvar=True, help="Store URL: sqlite:///tasks.db"
)

LOG_LEVEL: Final = "PERDURE_LOG_LEVEL"
LEVELS: Final = ("debug", "info", "warning", "error")
"""What `--log-level` takes."""

log_level = click.option(
    "--log-level",
    envvar=LOG_LEVEL,
    show_envvar=True,
    type=click.Choice(LEVELS, case_sensitive=False),
    help="From where on Perdure's own loggers write; as they are without it, which is info as a rule.",
)


def serving(command: CommandT) -> CommandT:
    """The options of every command that serves."""
    options = [
        click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on."),
        click.option(
            "--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="Port to listen on."
        ),
        store,
        click.option("--worker/--no-worker", default=None, help="Run tasks in this process, or only serve requests."),
        click.option("--stdio", is_flag=True, help="Speak MCP over standard input and output instead of HTTP."),
        click.option(
            "--allow-anonymous",
            is_flag=True,
            help="Listen beyond this machine though the server has no authentication.",
        ),
        log_level,
    ]
    for option in reversed(options):
        command = option(command)
    return command


def working(command: CommandT) -> CommandT:
    """The options of every command that runs tasks: how many at once, and which."""
    command = click.option(
        "--queue",
        "queues",
        multiple=True,
        metavar="NAME[=N]",
        help="Run the tasks of this queue, N at once at most; may be given again. All queues without it.",
    )(command)
    return click.option("--concurrency", type=click.IntRange(1), help="How many tasks to run at once.")(command)


def served_queues(given: tuple[str, ...]) -> dict[str, int | None]:
    """What `--queue` says: each queue with its bound; empty for all of them.

    Raises:
        BadParameter: it can't be read.
    """
    served: dict[str, int | None] = {}
    for each in given:
        name, bounded, most = each.partition("=")
        if not name or (bounded and not (most.isdecimal() and most.isascii() and int(most))):
            raise click.BadParameter(f"write NAME or NAME=N, with N at least 1, not {each!r}", param_hint="--queue")
        if name in served:
            raise click.BadParameter(f"{name!r} is there twice", param_hint="--queue")
        served[name] = int(most) if bounded else None
    return served
