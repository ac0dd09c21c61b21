"""The commands, as click has them: their words, and nothing of what they do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem, get_completion_class
from mcp_types import Tool

from perdure.client import ClientError, Journal
from perdure.ops import text
from perdure.ops.discretion import Told
from perdure.ops.options import Duration

from . import arguments, book, calls, desk, endpoint, listing, several
from .answering import Action
from .calls import CallRequest, WaitOptions
from .desk import Desk, Settings
from .endpoint import Endpoint
from .hints import is_plain
from .outcome import Code, Outcome
from .typed import Unfit

__all__ = ["answer", "call", "cancel", "completion", "forget", "ls", "resume", "tools", "watch"]

CommandT = TypeVar("CommandT", bound=Callable[..., None])

CODES: Final = """\b
Exit codes:
  0  there is a result
  1  the tool reported an error, the task failed, or the call was refused
  2  the command line is wrong, and nothing was called
  3  the task was cancelled
  4  the task goes on: detached, timed out, or waiting for an answer
  5  the server can't be reached or has lost the task, or nobody knows
     whether the call happened
  7  the server has no room just now: nothing was called, and the same
     command may succeed later"""


class _WithServer(click.Command):
    """A command whose line may end in `-- COMMAND ARG…`, the server to start. click forgets where the `--` was."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words, command = [*args], list[str]()
        if "--" in words:
            place = words.index("--")
            words, command = words[:place], words[place + 1 :]
            if not command:
                raise click.UsageError("After -- comes the command that starts the server.", ctx)
        ctx.meta[_COMMAND] = tuple(command)
        return super().parse_args(ctx, words)


_COMMAND: Final = "perdure.ops.calling.command"


Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _ids(*states: str) -> Complete:
    """The ids of what is in these states by the journal, for completion; of all without any.

    A journal that is not there is not made. A server chooses its ids, and bash puts what is completed into the line
    unquoted: only what does nothing there is offered.
    """

    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        said = ctx.params.get("journal") or os.environ.get(book.JOURNAL)
        found = {
            name: CompletionItem(name, help=text.line(f"{tool}, {state}"))
            for name, tool, state in reversed(_on_record(said))
            if name.startswith(incomplete) and is_plain(name) and (state in states or not states)
        }
        return [*found.values()]  # an id may be on record for several servers

    return complete


def _on_record(said: str | None) -> list[tuple[str, str, str]]:
    """What the journal has: ids, tools and states."""
    if not book.place(said).exists():
        return []
    try:
        journal = book.opened(said)
    except (ClientError, Unfit, OSError):
        return []
    try:
        return [(book.identity(each), each.tool, book.state(each, journal)) for each in journal.records()]
    except (ClientError, OSError):
        return []
    finally:
        journal.close()


_GOES_ON: Final = ("open", "lost")
"""A task that a server does not know may be known to it with another token."""
_JOURNAL: Final = click.option(
    "--journal",
    metavar="FILE",
    envvar=book.JOURNAL,
    show_envvar=True,
    help="Where calls are remembered; $XDG_STATE_HOME/perdure/handles.db without it.",
)
_JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def _common(command: CommandT) -> CommandT:
    for option in (
        click.option("--no-color", is_flag=True, help="No colours; NO_COLOR in the environment says the same."),
        click.option("--token-over-http", is_flag=True, help="Send the token to another machine without encryption."),
        click.option(
            "--token-file",
            metavar="FILE",
            envvar=endpoint.TOKEN_FILE,
            show_envvar=True,
            help=f"A file with the bearer token, which may also be in {endpoint.TOKEN}.",
        ),
        _JSON,
        _JOURNAL,
    ):
        command = option(command)
    return command


def _waits(command: CommandT) -> CommandT:
    command = click.option(
        "--questions",
        type=click.Choice(["ask", "wait", "leave"]),
        help="What to do when the task asks: ask here (on a terminal), wait for an answer from elsewhere, or leave.",
    )(command)
    return click.option("--timeout", type=Duration(), help="Wait this long at most: 30s, 10m, 2 hours.")(command)


def _server(command: CommandT) -> CommandT:
    return click.option("--server", metavar="URL", help="The server of a task, if the journal knows none or several.")(
        command
    )


@click.command(cls=_WithServer, epilog=CODES, short_help="Call a tool, and wait for its result.")
@click.argument("words", metavar="[URL] TOOL [KEY=VALUE]... [-- COMMAND...]", nargs=-1)
@click.option("--arguments", "file", metavar="FILE|-", help="The arguments as a JSON object; KEY=VALUE counts more.")
@click.option("--detach", is_flag=True, help="Print the task's id, and don't wait.")
@click.option("--idempotency-key", "key", metavar="KEY", help="The same key is the same call, also after a crash.")
@_waits
@_common
@click.pass_context
def call(
    context: click.Context,
    words: tuple[str, ...],
    file: str | None,
    detach: bool,
    key: str | None,
    timeout: int | None,
    questions: calls.Questions | None,
    **common: Any,
) -> None:
    """Call TOOL of the server at URL, or of the one that COMMAND starts, and wait for its result.

    \b
      perdure call https://tasks.example.com/mcp generate_report size=large
      perdure call generate_report size=large -- python server.py --stdio

    A value is read as the tool's schema wants it: text stays text, and 3, yes and {"a": 1} become what they are where
    no text is allowed. KEY:=VALUE is JSON; KEY=@FILE is what is in a file.

    Ctrl-C leaves the task alone and says how to come back; a second Ctrl-C cancels it.
    """  # noqa: D301 - click wants the character
    server, rest = _where(context, words)
    tool = rest[0] if rest and not arguments.looks_like_one(rest[0]) else None
    with _usage():
        given = {} if file is None else arguments.from_file(file)
    request = CallRequest(
        server,
        tool,
        rest[1:] if tool else rest,
        given,
        key=key,
        detach=detach,
        options=WaitOptions(_seconds(timeout), questions),
    )
    settings = Settings(**common)

    async def work(at: Desk) -> Sequence[Outcome]:
        outcomes = await calls.call(at, request)
        if detach and not settings.as_json and outcomes[0].result is None and not outcomes[0].code:
            click.echo(text.line(outcomes[0].id or ""))
        return outcomes

    desk.run(settings, work)


@click.command(epilog=CODES, short_help="Wait for a task that was called before.")
@click.argument("wanted", metavar="[ID]", required=False, shell_complete=_ids())
@_server
@_waits
@_common
def resume(
    wanted: str | None, server: str | None, timeout: int | None, questions: calls.Questions | None, **common: Any
) -> None:
    """Wait for the task ID, as `call` does; without ID for the newest that is open.

    ID may be the beginning of one. A call that was broken off in the middle goes by its key, and is made again only if
    the server knows it again.
    """
    place, options = _page(server), WaitOptions(_seconds(timeout), questions)
    desk.run(Settings(**common), lambda at: calls.resume(at, wanted, place, options))


@click.command(epilog=CODES, short_help="Look on while tasks go on.")
@click.argument("wanted", metavar="[ID]...", nargs=-1, shell_complete=_ids(*_GOES_ON))
@click.option("--timeout", type=Duration(), help="Look on this long at most.")
@_common
def watch(wanted: tuple[str, ...], timeout: int | None, **common: Any) -> None:
    """Look on while the tasks ID go on, to their ends; without ID all that are open.

    What they ask is shown, and how to answer it. The exit code is that of the first that has another one than 0.
    """
    desk.run(
        Settings(**common), lambda at: several.watch(at, wanted, WaitOptions(_seconds(timeout), "wait")), several=True
    )


@click.command(short_help="Ask tasks to stop.")
@click.argument("wanted", metavar="ID...", nargs=-1, required=True, shell_complete=_ids(*_GOES_ON))
@_server
@_common
def cancel(wanted: tuple[str, ...], server: str | None, **common: Any) -> None:
    """Ask the tasks ID to stop. A task that is over stays as it is."""
    place = _page(server)
    desk.run(Settings(**common), lambda at: several.cancel(at, wanted, place), several=True)


@click.command(short_help="Answer what a task asks.")
@click.argument("wanted", metavar="ID", shell_complete=_ids(*_GOES_ON))
@click.argument("words", metavar="[[QUESTION.]FIELD=VALUE]...", nargs=-1)
@click.option("--accept", "action", flag_value="accept", help="Agree to a question without fields.")
@click.option("--decline", "action", flag_value="decline", help="Say no to the question.")
@click.option("--cancel", "action", flag_value="cancel", help="Close the question without an answer.")
@click.option("--question", metavar="QUESTION", help="Which of several.")
@_server
@_common
def answer(
    wanted: str,
    words: tuple[str, ...],
    action: Action | None,
    question: str | None,
    server: str | None,
    **common: Any,
) -> None:
    """Answer what the task ID asks: by its fields, or at the terminal if there is nothing but ID."""
    if action is not None and words:
        raise click.UsageError(f"Say fields or --{action}, not both.")
    place = _page(server)
    desk.run(
        Settings(**common),
        lambda at: calls.answer(at, wanted, words, action=action, question=question, server=place),
    )


@click.command(short_help="List the calls that the journal remembers.")
@_JSON
@_JOURNAL
def ls(as_json: bool, journal: str | None) -> None:
    """List the calls that the journal remembers, the newest last.

    `open` is what nobody has seen the end of, `calling` what another process is just calling, and `unsure` a call of
    which nobody knows whether it happened. What is over stays for a week.
    """
    with _opened(journal) as opened:
        entries = [book.entry(each, opened, time.time()) for each in opened.records()]
    if as_json:
        click.echo(text.document(entries))
    else:
        head = ("ID", "TOOL", "STATUS", "AGE", "SERVER")
        click.echo("\n".join(text.table(head, book.rows(entries), empty="No calls.")))


@click.command(short_help="Strike calls off the list.")
@click.argument("wanted", metavar="ID...", nargs=-1, required=True, shell_complete=_ids())
@_JOURNAL
def forget(wanted: tuple[str, ...], journal: str | None) -> None:
    """Strike the calls ID off the list, as one that is `unsure` and is not to be made again.

    Nothing is cancelled, and no server hears of it: a task goes on, and nobody comes back to it from here.
    """
    with _opened(journal) as opened:
        for name in book.forget(opened, wanted):
            click.echo(f"perdure: {text.line(name)} is forgotten", err=True)


@click.command(cls=_WithServer, short_help="List the tools of a server.")
@click.argument("words", metavar="[URL] [-- COMMAND...]", nargs=-1)
@_common
@click.pass_context
def tools(context: click.Context, words: tuple[str, ...], **common: Any) -> None:
    """List the tools of the server at URL, or of the one that COMMAND starts, with their arguments."""
    server, rest = _where(context, words)
    if rest:
        raise Told(f"There is more than a server: {' '.join(rest)}")
    settings = Settings(**common)
    found: list[Tool] = []

    desk.run(settings, lambda at: calls.tools(at, server, found), goes_on=True)
    if settings.as_json:
        click.echo(text.document([each.model_dump(by_alias=True, mode="json", exclude_none=True) for each in found]))
    else:
        click.echo("\n".join(line for each in found for line in listing.told(each)) or "No tools.")


@click.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what makes SHELL complete commands, options and ids.

    \b
      bash:  eval "$(perdure completion bash)"    in ~/.bashrc
      zsh:   eval "$(perdure completion zsh)"     in ~/.zshrc
      fish:  perdure completion fish > ~/.config/fish/completions/perdure.fish
    """  # noqa: D301 - as above
    found = get_completion_class(shell)
    assert found is not None  # noqa: S101 - click has these three
    click.echo(found(context.find_root().command, {}, "perdure", "_PERDURE_COMPLETE").source())


# -- words -------------------------------------------------------------------------------------------------------------


@contextmanager
def _usage() -> Generator[None]:
    """What can't be understood is a usage error."""
    try:
        yield
    except Unfit as error:
        raise Told(text.line(str(error))) from None


@contextmanager
def _opened(said: str | None) -> Generator[Journal]:
    """The journal, for commands that need no server."""
    with _usage():
        try:
            journal = book.opened(said)
            try:
                yield journal
            finally:
                journal.close()
        except (ClientError, OSError) as error:
            click.echo(f"perdure: {text.line(str(error))}", err=True)
            raise SystemExit(Code.UNKNOWN) from None


def _seconds(duration_ms: int | None) -> float | None:
    return None if duration_ms is None else duration_ms / 1000


def _where(context: click.Context, words: tuple[str, ...]) -> tuple[Endpoint, tuple[str, ...]]:
    """The server, and the words after it."""
    command: tuple[str, ...] = context.meta[_COMMAND]
    url = words[0] if words and "://" in words[0] and not arguments.looks_like_one(words[0].partition("?")[0]) else None
    if command and url:
        raise click.UsageError("Say which server once: URL, or -- COMMAND.")
    if command:
        return endpoint.StdioEndpoint(command, str(_folder())), words
    if url is None:
        near = endpoint.nearest_url(words[0]) if words else None
        raise Told(f"Say which server: URL first, or -- COMMAND last{f'; did you mean {near}?' if near else '.'}")
    with _usage():
        return endpoint.parse_url(url), words[1:]


def _folder() -> str:
    return os.getcwd()  # noqa: PTH109 - as it is called, links and all


def _page(url: str | None) -> Endpoint | None:
    with _usage():
        return None if url is None else endpoint.parse_url(url)
