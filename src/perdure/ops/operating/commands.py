"""`perdure tasks …`: what is typed and what is printed; what is done is done elsewhere.

A command ends with 0 if it did what it was told, with 1 if something was refused or not found, with 2 if it was not
understood. It asks before it touches tasks that were not named one by one, unless it is told `--yes`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import click

from perdure.domain.model import Status
from perdure.domain.operating import Which
from perdure.ops import options, text

from . import acting, filters, looking, words
from .plain import Plain

__all__ = ["echo", "tasks"]

CommandT = TypeVar("CommandT", bound=Callable[..., None])

_ATTEMPTS: Final = 10
_ENDED_ITSELF: Final = (Status.COMPLETED, Status.FAILED)

_yes = click.option("--yes", is_flag=True, help="Do not ask.")
_contents = click.option(
    "--contents", "with_contents", is_flag=True, help="With what it is about; needs the keys of a store that is sealed."
)


def _on_a_store(command: CommandT) -> CommandT:
    """The options that all of them have."""
    as_json = click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
    return options.named_store(as_json(command))


def echo(found: Plain, say: Callable[[Plain], Iterable[str]] | None) -> None:
    """Print what was found: in words, or as JSON if `say` is None. Nothing that a terminal would obey gets there."""
    if say is None:
        click.echo(json.dumps(found, indent=2))
    else:
        click.echo("\n".join(map(text.cleaned, say(found))))


@click.group()
def tasks() -> None:
    """See and handle the tasks on a store, whoever owns them, while servers and workers go on.

    Tasks are named by their ids, or by as much of one as logs show.
    """


# -- looking -----------------------------------------------------------------------------------------------------------


@tasks.command("ls")
@filters.filtered
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="How many at most.")
@_on_a_store
def list_(store: str, as_json: bool, limit: int, **given: Any) -> None:
    """List tasks, the newest first, without their contents."""
    echo(looking.listing(store, filters.which(**given), limit), None if as_json else words.say_list)


@tasks.command("show")
@click.argument("task_id", metavar="TASK_ID")
@_contents
@_on_a_store
def show_one(task_id: str, store: str, as_json: bool, with_contents: bool) -> None:
    """Show how far one task is: its run, its steps, its questions, what happened to it."""
    found = looking.show(store, task_id, with_contents=with_contents)
    echo(found, None if as_json else words.say_inspection)


@tasks.command()
@_on_a_store
def stats(store: str, as_json: bool) -> None:
    """Count the tasks of each tool by status, and what waits there. Looks at all of them."""
    echo(looking.stats(store), None if as_json else words.say_stats)


@tasks.command()
@filters.filtered
@_contents
@options.named_store
@click.pass_context
def export(context: click.Context, store: str, with_contents: bool, **given: Any) -> None:
    """Print tasks as JSON, one a line, the newest first; all of them, or those that are meant."""
    which = filters.which(**given)
    unreadable = looking.export(store, which, lambda each: click.echo(json.dumps(each)), with_contents=with_contents)
    if unreadable:
        click.echo(f"perdure: tasks that can't be read: {unreadable}", err=True)
        context.exit(1)


# -- handling ----------------------------------------------------------------------------------------------------------


@tasks.command()
@click.argument("task_ids", metavar="[TASK_ID]...", nargs=-1)
@filters.filtered
@_yes
@_on_a_store
@click.pass_context
def cancel(
    context: click.Context, task_ids: tuple[str, ...], store: str, as_json: bool, yes: bool, **given: Any
) -> None:
    """Ask tasks to stop: those that are named, or all unfinished ones that have something in common.

    What nobody runs is cancelled at once. A worker that has it is told, and what its code then does decides.
    """
    if task_ids:
        _nothing_else(given)
        done = acting.cancel_named(store, task_ids)
    else:
        which = _meant(given, filters.UNFINISHED)
        agreed = _agreed(store, which, "Ask {} to stop?", yes=yes)
        done = acting.cancel_all(store, which) if agreed else []
    echo({"tasks": done}, None if as_json else words.say_cancelled)
    if any(each["outcome"] == "refused" or each["status"] in _ENDED_ITSELF for each in done):
        context.exit(1)


@tasks.command()
@click.argument("task_id", metavar="TASK_ID")
@click.option("--anew", is_flag=True, help="Order what is over once more, as another task.")
@click.option(
    "--max-attempts", type=click.IntRange(1), help="With --anew: deaths of workers until it fails. 10 without it."
)
@click.option("--timeout", type=options.Duration(), help="With --anew: bound of each run. None without.")
@_on_a_store
def retry(task_id: str, store: str, as_json: bool, anew: bool, max_attempts: int | None, timeout: int | None) -> None:
    """Do not wait any longer: make a run due that waits for a time; or with --anew, order anew what is over.

    What is over stays over: the new task has an id of its own, the same owner, tool, arguments and ttl, and the
    MAX-ATTEMPTS and TIMEOUT that are given here, since the old one's are not kept. A task is ordered anew once; after
    that you are told which the new one is. It needs the keys of a store that is sealed.
    """
    if anew:
        attempts = _ATTEMPTS if max_attempts is None else max_attempts
        done = acting.order_anew(store, task_id, max_attempts=attempts, timeout_ms=timeout)
    elif max_attempts is None and timeout is None:
        done = acting.hurry(store, task_id)
    else:
        raise click.UsageError("--max-attempts and --timeout are for a new task: say --anew.")
    echo(done, None if as_json else words.say_retried)


@tasks.command()
@filters.filtered
@click.option("--dry-run", is_flag=True, help="Change nothing; say how many there are.")
@click.option(
    "--tombstone",
    type=options.Duration(),
    default="1d",
    show_default=True,
    help="How long their owners hear that they expired, rather than that there is no such task.",
)
@_yes
@_on_a_store
def purge(store: str, as_json: bool, dry_run: bool, tombstone: int, yes: bool, **given: Any) -> None:
    """Delete tasks that are over, whatever their ttl. Their results are gone for their clients too."""
    which = _meant(given, filters.FINISHED)
    if dry_run:
        echo({"purged": 0, "would_purge": acting.count(store, which)}, None if as_json else words.say_purged)
        return
    agreed = _agreed(store, which, "Delete {} for good?", yes=yes)
    purged = acting.purge(store, which, tombstone) if agreed else 0
    echo({"purged": purged}, None if as_json else words.say_purged)


def _nothing_else(given: dict[str, Any]) -> None:
    if _says_anything(given):
        raise click.UsageError("Say TASK_IDs, or what tasks have in common; not both.")


def _says_anything(given: dict[str, Any]) -> bool:
    return any(value not in (None, ()) for value in given.values())


def _meant(given: dict[str, Any], among: filters.Statuses) -> Which:
    """Which tasks are meant. Nobody means all of them by saying nothing."""
    if not _says_anything(given):
        group = "unfinished" if among is filters.UNFINISHED else "finished"
        raise click.UsageError(f"Say which: all of them are --status {group}.")
    return filters.which(**given, among=among)


def _agreed(store: str, which: Which, question: str, *, yes: bool) -> bool:
    """Go on only if somebody agrees. The end of the input is nobody's answer: there is no terminal, most likely.

    False: there was nothing to agree to, nor is there now to what has come since.
    """
    if yes:
        return True
    count = acting.count(store, which)
    if not count:
        return False
    counted = f"{count} task{'' if count == 1 else 's'}"
    click.echo(f"{question.format(counted)} [y/N]: ", nl=False, err=True)
    answer = sys.stdin.readline() if sys.stdin else ""
    if not answer:
        click.echo(err=True)
        raise click.UsageError("Nobody is here to agree, so nothing was done. Say --yes.")
    if answer.strip().lower() not in ("y", "yes"):
        click.echo("perdure: nothing was done", err=True)
        raise click.exceptions.Exit(1)
    return True
