"""The log of a program of ours has one format, unless the program has one of its own."""

import re
import subprocess
import sys
from typing import Final

import pytest

from perdure.ops.options import LEVELS
from tests import copies

PROGRAM: Final = """\
import logging, sys
sys.modules.update(dict.fromkeys({missing!r}))
{before}
from mcp.server.mcpserver import MCPServer
from perdure.ops import logs
MCPServer("small")
logs.configure()
logging.getLogger("perdure.tests").warning("it %s", "rains")
logging.getLogger("perdure.tests").debug("not this")
"""
OURS: Final = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z WARNING perdure\.tests: it rains\n"


def logged(missing: tuple[str, ...]) -> str:
    """What a program writes that is started anew: what is missing must be so before anything is loaded."""
    command = [sys.executable, "-c", PROGRAM.format(before="", missing=missing)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not done.stdout
    return done.stderr


async def written(program: str) -> str:
    """The same for one that is a copy."""
    done = await copies.ended([sys.executable, "-c", program])
    assert (done.code, done.output) == (0, ""), done.errors
    return done.errors


LEVELLED: Final = """\
import logging
from perdure.ops import logs, options
from mcp.server.mcpserver import MCPServer
MCPServer("small")
logs.configure({level!r})
for name in ("perdure.wire.guard", "httpcore.http11", "mine"):
    for level in options.LEVELS:
        logging.getLogger(name).log(getattr(logging, level.upper()), "%s", level)
"""


@pytest.mark.parametrize("level", [None, "debug", "info", "warning", "error"])
async def test_a_level_is_that_of_our_own_loggers_and_of_no_others(level: str | None) -> None:
    errors = await written(LEVELLED.format(level=level))
    usual = ["info", "warning", "error"]
    for name in ("httpcore.http11", "mine"):
        assert re.findall(rf"{name}: (\w+)$", errors, re.MULTILINE) == usual
    ours = usual if level is None else list(LEVELS[LEVELS.index(level) :])
    assert re.findall(r"perdure\.wire\.guard: (\w+)$", errors, re.MULTILINE) == ours


@pytest.mark.parametrize("missing", [(), ("rich.console", "rich.logging")], ids=["as installed", "without rich"])
def test_a_line_says_when_how_bad_and_who(missing: tuple[str, ...]) -> None:
    assert re.fullmatch(OURS, logged(missing))


@pytest.mark.parametrize(
    "how",
    [
        "logging.basicConfig(format='mine %(message)s')",
        "logging.basicConfig(format='mine %(message)s', handlers=[logging.StreamHandler(sys.stderr)])",
    ],
)
async def test_what_the_program_configured_stays(how: str) -> None:
    assert await written(PROGRAM.format(before=how, missing=())) == "mine it rains\n"


async def test_so_do_several_handlers() -> None:
    how = "logging.basicConfig(format='%(message)s', handlers=[logging.StreamHandler(), logging.NullHandler()])"
    assert await written(PROGRAM.format(before=how, missing=())) == "it rains\n"


async def test_a_client_that_hangs_up_within_a_body_or_never_ends_it_leaves_no_trace_and_anything_else_does() -> None:
    raised = """
import asyncio
import starlette.requests
def told(name, error):
    try:
        raise error
    except BaseException:
        logging.getLogger(name).exception("told")
for name in ("uvicorn.error", "mcp.server.streamable_http"):
    logs.configure()
    told(name, starlette.requests.ClientDisconnect())
    told(name, asyncio.CancelledError("Task cancelled, timeout graceful shutdown exceeded"))
    told(name, ValueError(name))
"""
    errors = await written(PROGRAM.format(before="", missing=()) + raised)
    assert "ClientDisconnect" not in errors
    assert "CancelledError" not in errors
    assert errors.count("ERROR") == 2
    assert re.findall(r"^ValueError: (.*)$", errors, re.MULTILINE) == [
        "uvicorn.error",
        "mcp.server.streamable_http",
    ]


FULL: Final = """\
import logging
from perdure.ops import logs
logs.configure()
logs.configure()
for n in range(3):
    try:
        raise OSError(24, "Too many open files")
    except OSError as error:
        logging.getLogger("asyncio").error("socket.accept() out of system resource\\nsocket: %d", n, exc_info=error)
logging.getLogger("asyncio").error("something else")
"""


async def test_of_connections_that_can_not_be_accepted_there_is_one_line_and_no_trace() -> None:
    """asyncio writes 2,048 of them a second, each with a traceback."""
    full, other = (await written(FULL)).splitlines()
    assert full.endswith("ERROR asyncio: no connection can be accepted: [Errno 24] Too many open files")
    assert other.endswith("something else")
