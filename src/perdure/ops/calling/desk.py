"""What every command of this room works with: the terminal, the journal, the token, signals; and how it ends.

A command is a coroutine that comes to outcomes. Here is the one place where they are printed, on standard output the
result and nothing else, and turned into the exit code.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import anyio
import click
from mcp.client import Client
from mcp.client.session import ClientRequestContext
from mcp_types import INVALID_REQUEST, ElicitRequestParams, ElicitResult, ErrorData
from pydantic import ValidationError

from perdure.client import ClientError, Journal, JournalUnusable, Tasks
from perdure.client.link import alone
from perdure.ops import text
from perdure.ops.discretion import Told

from . import book, endpoint, forms
from .arguments import Asked, Misfits
from .endpoint import Access, Door, Endpoint, HttpEndpoint
from .hints import Hints
from .outcome import Code, Outcome, of_error, spoken, worst
from .screen import Keyboard, Screen
from .stopping import Stop, listening
from .typed import Unfit

__all__ = ["Desk", "Settings", "Unreachable", "outcome_of", "run", "unforeseen"]

_CONNECT: Final = 60.0
"""Seconds to connect within, of a command that sets no other bound. A server that is started may have much to load."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What all commands can be told."""

    journal: str | None = None
    token_file: str | None = None
    token_over_http: bool = False
    no_color: bool = False
    as_json: bool = False


class Unreachable(Exception):
    """There is no session with a server. `lines`: what it said before it ended, if it was started here."""

    def __init__(self, message: str, lines: Sequence[str] = ()) -> None:
        self.lines = tuple(lines)
        super().__init__(message)


class Desk:
    """See the module. `keyboard`: None where nobody can be asked. `stop`: where signals are counted.

    `server_said`: the last lines on the standard error of a server that was started here and is over.
    """

    def __init__(
        self, settings: Settings, journal: Journal, access: Access, screen: Screen, keyboard: Keyboard | None
    ) -> None:
        self.settings = settings
        self.journal = journal
        self.access = access
        self.stop = Stop()
        self.screen = screen
        self.keyboard = keyboard
        self.server_said: Sequence[str] = ()
        self.hints = Hints(settings.journal)
        self._forms = anyio.Lock()

    @asynccontextmanager
    async def connected(self, server: Endpoint, *, within: float | None = None) -> AsyncGenerator[tuple[Client, Tasks]]:
        """A session.

        Raises:
            Unreachable: there is none.
            Unfit: the server must not be given the token, or there is no such command.
        """
        log, door, self.server_said = endpoint.ServerLog(), Door(), ()
        is_connected = False
        limit = _CONNECT if within is None else within
        try:
            with anyio.fail_after(limit) as scope:
                opening = endpoint.connected(server, self.journal, self.access, self.ask, log, door)
                async with log.kept(), opening as both:
                    is_connected, scope.deadline = True, float("inf")
                    yield both
        except Exception as error:  # noqa: BLE001 - boundary: whatever the SDK makes of a server
            if is_connected or isinstance(alone(error), Unfit):
                raise alone(error) from None
            raise _unreachable(server, alone(error), log, door.refusal(server, self.access)) from None
        finally:
            self.server_said = log.closed()

    async def ask(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        """The client's callback for questions. One at a time has the terminal."""
        if self.keyboard is None:
            said = f"The tool asks before it begins, and only a person at a terminal can answer: {params.message}"
            return ErrorData(code=INVALID_REQUEST, message=said)
        async with self._forms:
            return await forms.fill(self.screen, self.keyboard, params)

    def again(self, id: str, verb: str = "resume") -> str:
        """The command that does something about a task."""
        return self.hints.about(id, verb)


def run(
    settings: Settings,
    work: Callable[[Desk], Awaitable[Sequence[Outcome]]],
    *,
    several: bool = False,
    goes_on: bool = False,
) -> None:
    """Do it, print what came of it, and exit. `several`: JSON is a list. `goes_on`: without outcomes, return."""
    if not logging.getLogger().handlers:
        # What the SDK logs of a server would be written across the screen, as it came.
        logging.getLogger().addHandler(logging.NullHandler())
    output: Any = sys.stdout
    if isinstance(output, io.TextIOWrapper):
        # A result is worth more than a letter that the locale does not have.
        cast("Any", output).reconfigure(errors="replace")
    outcomes = _done(settings, work)
    if goes_on and not outcomes:
        return
    screen = _screen(no_color=settings.no_color)
    try:
        _print(settings, outcomes, screen, several=several)
    except OSError as error:
        if error.errno != errno.EPIPE:
            _unprinted(settings, outcomes, screen)
        raise
    sys.exit(worst([*outcomes]))


def _done(settings: Settings, work: Callable[[Desk], Awaitable[Sequence[Outcome]]]) -> Sequence[Outcome]:
    try:
        access = Access.found(settings.token_file, over_http=settings.token_over_http)
        journal = book.opened(settings.journal)
    except Unfit as error:
        raise Told(text.line(str(error))) from None
    except (JournalUnusable, OSError) as error:
        return [Outcome(Code.UNKNOWN, "unavailable", str(error))]
    try:
        return anyio.run(_worked, settings, journal, access, work)
    except Exception as error:  # noqa: BLE001 - boundary: what no outcome is made of is raised again
        return [_of(alone(error), Hints(settings.journal))]
    finally:
        journal.close()


async def _worked(
    settings: Settings, journal: Journal, access: Access, work: Callable[[Desk], Awaitable[Sequence[Outcome]]]
) -> Sequence[Outcome]:
    desk = Desk(settings, journal, access, _screen(no_color=settings.no_color), _keyboard())
    async with listening(desk.stop):
        outcomes = await work(desk)
    return [_explained(each, desk.server_said) for each in outcomes]


def _explained(outcome: Outcome, server_said: Sequence[str]) -> Outcome:
    """With what a server said that is gone: the reason is in there."""
    if outcome.status != "unavailable" or not server_said:
        return outcome
    return replace(outcome, words="\n".join([outcome.words, *server_said]))


def outcome_of(error: BaseException, hints: Hints, *, id: str | None = None) -> Outcome:
    """What an error comes to that a command ends with, or a part of it, which is about the task `id`."""
    if isinstance(error, Unreachable):
        return Outcome(Code.UNKNOWN, "unavailable", "\n".join([str(error), *error.lines]), id=id)
    if isinstance(error, Unfit):
        return Outcome(Code.UNKNOWN, "unavailable", str(error), id=id)
    if isinstance(error, ValidationError):
        return Outcome(Code.UNKNOWN, "unavailable", "The server's answer is not what the protocol has", id=id)
    if isinstance(error, TimeoutError) and not isinstance(error, ClientError):
        return Outcome(Code.UNKNOWN, "unavailable", "The server did not answer in time", id=id)
    return of_error(error, id=id, tool="", hints=hints) or unforeseen(error)


def _of(error: BaseException, hints: Hints) -> Outcome:
    if isinstance(error, Misfits):
        raise Told("\n".join(map(text.cleaned, error.lines)), quotes=not isinstance(error, Asked)) from None
    if isinstance(error, Unfit):
        raise Told(text.line(str(error))) from None
    return outcome_of(error, hints)


def unforeseen(error: BaseException) -> Outcome:
    """A fault of ours or the SDK's, in full and fit to be shown. Python would print a server's words as they are."""
    trace = "".join(traceback.format_exception(error))
    return Outcome(Code.UNKNOWN, "unavailable", f"Nobody thought of this:\n{trace}")


def _unreachable(server: Endpoint, error: BaseException, log: endpoint.ServerLog, refusal: str | None) -> BaseException:
    if isinstance(error, FileNotFoundError | PermissionError | NotADirectoryError) and not isinstance(
        server, HttpEndpoint
    ):
        return Unfit(f"{server.shown} can't be started: {error.strerror}")
    if refusal is not None:
        return Unreachable(f"{server.shown}: {refusal}")
    why = "it did not answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
    return Unreachable(f"{server.shown}: no connection: {why}", log.closed())


def _print(settings: Settings, outcomes: Sequence[Outcome], screen: Screen, *, several: bool) -> None:
    for outcome in outcomes:
        name = text.line(outcome.id or "") if len(outcomes) > 1 else ""
        if outcome.result is not None and not settings.as_json:
            for part in [*([f"{name}:"] if name else []), *spoken(outcome.result)]:
                click.echo(part)
        if outcome.words:
            # With a sign in front, so that no line of it can pass for one of ours.
            words = text.block(outcome.words).replace("\n", "\n  | ")
            whose = f"{name}: " if name and name not in words else ""
            screen.say(f"perdure: {whose}{words}", "bad" if outcome.code in _ERRORS else None)
    if settings.as_json:
        plain: list[dict[str, Any]] = [each.plain() for each in outcomes]
        click.echo(text.document(plain if several else plain[0]))


def _unprinted(settings: Settings, outcomes: Sequence[Outcome], screen: Screen) -> None:
    """What could not be printed. The end of the program says why."""
    for outcome in outcomes:
        if outcome.result is None:
            continue
        again = "it is gone, since it had no task"
        if outcome.id is not None:
            again = f"it is still there: {Hints(settings.journal).about(outcome.id)}"
        screen.say(f"perdure: The result could not be printed; {again}", "bad")


_ERRORS: Final = frozenset({Code.FAILED, Code.UNKNOWN, Code.LATER})


def _screen(*, no_color: bool) -> Screen:
    live = _is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb"
    # https://no-color.org: any text in it, whatever it says.
    return Screen(sys.stderr, live=live, colour=live and not no_color and not os.environ.get("NO_COLOR"))


def _keyboard() -> Keyboard | None:
    return Keyboard(sys.stdin.fileno()) if _is_terminal(sys.stdin) and _is_terminal(sys.stderr) else None


def _is_terminal(stream: Any) -> bool:
    return stream is not None and not stream.closed and stream.isatty()
