"""The log of a program of ours has one format, unless the program has one of its own."""

import re
import subprocess
import sys
from typing import Final

import pytest

from perdure.ops.options import LEVELS

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


def logged(before: str = "", missing: tuple[str, ...] = ()) -> str:
    command = [sys.executable, "-c", PROGRAM.format(before=before, missing=missing)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not done.stdout
    return done.stderr


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
def test_a_level_is_that_of_our_own_loggers_and_of_no_others(level: str | None) -> None:
    command = [sys.executable, "-c", LEVELLED.format(level=level)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    usual = ["info", "warning", "error"]
    for name in ("httpcore.http11", "mine"):
        assert re.findall(rf"{name}: (\w+)$", done.stderr, re.MULTILINE) == usual
    ours = usual if level is None else list(LEVELS[LEVELS.index(level) :])
    assert re.findall(r"perdure\.wire\.guard: (\w+)$", done.stderr, re.MULTILINE) == ours


@pytest.mark.parametrize("missing", [(), ("rich.console", "rich.logging")], ids=["as installed", "without rich"])
def test_a_line_says_when_how_bad_and_who(missing: tuple[str, ...]) -> None:
    assert re.fullmatch(OURS, logged(missing=missing))


@pytest.mark.parametrize(
    "how",
    [
        "logging.basicConfig(format='mine %(message)s')",
        "logging.basicConfig(format='mine %(message)s', handlers=[logging.StreamHandler(sys.stderr)])",
    ],
)
def test_what_the_program_configured_stays(how: str) -> None:
    assert logged(how) == "mine it rains\n"


def test_so_do_several_handlers() -> None:
    how = "logging.basicConfig(format='%(message)s', handlers=[logging.StreamHandler(), logging.NullHandler()])"
    assert logged(how) == "it rains\n"


def test_a_client_that_hangs_up_within_a_body_or_never_ends_it_leaves_no_traceback_and_anything_else_does() -> None:
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
    command = [sys.executable, "-c", PROGRAM.format(before="", missing=()) + raised]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "ClientDisconnect" not in done.stderr
    assert "CancelledError" not in done.stderr
    assert done.stderr.count("ERROR") == 2
    assert re.findall(r"^ValueError: (.*)$", done.stderr, re.MULTILINE) == [
        "uvicorn.error",
        "mcp.server.streamable_http",
    ]
