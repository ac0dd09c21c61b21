"""How the program `perdure` ends, whichever command it was: what is said last, and with which exit code.

A result that could not be written is not a result, and no fault of ours that Python should show a trace of: the disk is
full, the descriptor is closed, or whoever reads has read enough. Commands need not know. Their standard output takes
down what became of it, and the end of the program says so. What can't be said on standard error is dropped instead: by
then nobody hears it, and the status still tells how the command went.

Ctrl-C ends a command as by its signal, which is how a shell's loop comes to know that it is to end too.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, Final, NoReturn, TypeVar

import click

__all__ = ["UNWRITTEN", "run"]

StreamT = TypeVar("StreamT", bound=io.TextIOWrapper)

UNWRITTEN: Final = 6
"""The exit code of a command whose output could not be written: beside those of `perdure call`, 0 to 5."""
_CUT_OFF: Final = 128 + signal.SIGPIPE
"""As a shell has it of a program that wrote to a pipe which nobody reads any more."""
_OUT: Final = 1
_ERR: Final = 2


class _Output(io.TextIOWrapper):
    """A stream that notes in `lost` why something could not be written."""

    lost: OSError | None = None

    def write(self, text: str, /) -> int:
        with self._noting():
            return super().write(text)

    def flush(self) -> None:
        with self._noting():
            super().flush()

    @contextmanager
    def _noting(self) -> Generator[None]:
        # Not in the layers below: between a write of theirs and its being counted Ctrl-C must not come, or it is
        # written twice.
        try:
            yield
        except OSError as error:
            self.lost = error
            raise


class _Aside(io.TextIOWrapper):
    """A stream of what is dropped where it can't be written."""

    def write(self, text: str, /) -> int:
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


def run(command: Callable[[], object]) -> NoReturn:
    """Run a command of click's that leaves the end of the program to its caller (`standalone_mode=False`).

    Raises:
        SystemExit, KeyboardInterrupt: always one of these, unless the command raised what nobody thought of.
    """
    _fill_gaps()
    sys.stdout = output = _in_place_of(sys.stdout, _Output, _OUT)
    sys.stderr = _in_place_of(sys.stderr, _Aside, _ERR)
    try:
        status = _ended(command)
        output.flush()
    except KeyboardInterrupt:
        sys.excepthook = _nothing_said
        raise
    except Exception:
        if output.lost is None:
            raise
        status = 0
    finally:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # what the interpreter still does is nothing to be told of
    sys.exit(status if output.lost is None else _lost(output.lost))


def _ended(command: Callable[[], object]) -> int:
    """The status that a command ended with; what it had to say about that is said."""
    try:
        status = command()
    except click.Abort as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        click.echo("Aborted!", err=True)
        return 1
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except SystemExit as error:
        if isinstance(error.code, str):
            click.echo(error.code, err=True)
            return 1
        return error.code or 0
    return status if isinstance(status, int) else 0


def _lost(error: OSError) -> int:
    """The status of a program whose output was lost."""
    # What is still in a buffer would be tried again, by an interpreter that makes a trace of it.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, _OUT)
    if error.errno == errno.EPIPE:
        return _CUT_OFF
    print(f"perdure: standard output can't be written: {error.strerror}", file=sys.stderr)
    return UNWRITTEN


def _fill_gaps() -> None:
    """Have something stand where a descriptor was closed, or the next file that is opened (a store's) stands there.

    It can't be written to, as a closed one can't.
    """
    for descriptor in (0, _OUT, _ERR):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)  # gets the lowest number that is free


def _in_place_of(before: Any, kind: type[StreamT], descriptor: int) -> StreamT:
    """A stream to the descriptor that is otherwise as before; that was None if the descriptor was closed."""
    buffer = io.BufferedWriter(io.FileIO(descriptor, "w", closefd=False))
    if before is None:
        return kind(buffer, encoding="utf-8", errors="backslashreplace")
    return kind(
        buffer,
        encoding=before.encoding,
        errors=before.errors,
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )


def _nothing_said(*_: object) -> None:
    """In place of a trace; the interpreter then ends as by the signal."""
