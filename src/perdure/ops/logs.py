"""How the log of a program of ours looks: one format, on standard error, whatever else is installed.

The SDK configures logging whenever a server is made, by what it finds there: for terminals if there is `rich`, and by
the message alone if there is not. A log that is kept needs more and always the same, so that takes its place. What the
program itself configured stays as it is.
"""

from __future__ import annotations

import logging
import sys
import time
from asyncio import CancelledError
from typing import Any, Final, cast

from starlette.requests import ClientDisconnect

from perdure.wire.refusals import Seldom

__all__ = ["configure"]

_OURS: Final = "perdure"
"""The logger above all of ours."""

_ASYNCIO: Final = "asyncio"
_FULL: Final = "socket.accept() out of system resource"
"""How asyncio's line begins."""

_TELL_OF_HANG_UPS: Final = ("uvicorn.error", "mcp.server.streamable_http")


class _HangUps(logging.Filter):
    """Keeps out what is no error of the server's: a client that hangs up within the body of its request, or never ends.

    The latter is cut off when the server ends, and uvicorn says in one line how many there are of those. Each would
    leave a traceback, and a client may do that as often as it likes.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], ClientDisconnect | CancelledError))


class _Full(logging.Filter):
    """Of connections that can't be accepted, since there are no more descriptors, one line a minute.

    asyncio tries once a second, as often as the backlog is long, and each try would leave a traceback: 2,048 of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seldom = Seldom()

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.getMessage().startswith(_FULL):
            return True
        more = self._seldom.due(_FULL)
        reason = record.exc_info[1] if record.exc_info else None
        record.msg, record.args, record.exc_info = f"no connection can be accepted: {reason}{more}", None, None
        return more is not None


class _Lines(logging.Formatter):
    """Times as `perdure tasks show` writes them, so that a task's timeline and the log can be laid side by side."""

    converter = time.gmtime
    default_time_format = "%Y-%m-%d %H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")


def configure(level: str | None = None) -> None:
    """Give the log its format, unless the program did. To be called once the server is there.

    `level`, one of `options.LEVELS`: from where on our own loggers write. All other levels stay as they are: what
    libraries say of each request would bury what was asked for. A program that has done exactly what the SDK does can't
    be told from it.
    """
    if level is not None:
        logging.getLogger(_OURS).setLevel(level.upper())
    for name in _TELL_OF_HANG_UPS:
        logger = logging.getLogger(name)
        if not any(isinstance(each, _HangUps) for each in logger.filters):
            logger.addFilter(_HangUps())
    if not any(isinstance(each, _Full) for each in logging.getLogger(_ASYNCIO).filters):
        logging.getLogger(_ASYNCIO).addFilter(_Full())
    root = logging.getLogger()
    if not root.handlers:
        root.setLevel(logging.INFO)
    elif len(root.handlers) != 1 or not _is_the_sdks(root.handlers[0]):
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines())
    for before in tuple(root.handlers):
        root.removeHandler(before)
        before.close()
    root.addHandler(handler)


def _is_the_sdks(handler: logging.Handler) -> bool:
    """Whether it is what the SDK makes: one that writes bare messages to standard error, by `rich` or without."""
    if handler.formatter is None or handler.formatter.datefmt is not None:
        return False
    if handler.format(logging.makeLogRecord({"msg": "as it is"})) != "as it is":
        return False
    if type(handler) is logging.StreamHandler:
        return cast("Any", handler).stream is sys.stderr
    on_stderr = getattr(getattr(handler, "console", None), "stderr", False) is True
    return type(handler).__module__.startswith("rich.") and on_stderr and hasattr(handler, "rich_tracebacks")
