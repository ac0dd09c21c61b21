"""Standard input that ends when the process is told to stop.

Over stdio a server ends in order when its input does: open requests are dropped, running tasks handed over. A signal
should come to the same. But the SDK reads the input in a thread that nothing can interrupt, and cancelling its loop
waits for that thread, hence for the client's next message. So the SDK gets a pipe of ours for its input, and a signal
ends what we write into it. And who listens is told before the input ends: the SDK answers nothing after that.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

__all__ = ["ends_when_told"]

_STDIN: Final = 0
_CHUNK: Final = 1 << 16


@contextmanager
def ends_when_told(last: Callable[[], None]) -> Generator[None]:
    """Inside, SIGTERM and Ctrl-C end the standard input; a second Ctrl-C ends the process. In the main thread only.

    `last` is called before it ends, for whatever reason, in another thread; the end waits for that.
    """
    source, told, tell = os.dup(_STDIN), *os.pipe()
    readable, sink = os.pipe()
    os.dup2(readable, _STDIN)
    os.close(readable)

    def stop(signum: int, _: FrameType | None) -> None:
        os.write(tell, b".")
        if signum == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)

    before = {each: signal.signal(each, stop) for each in (signal.SIGINT, signal.SIGTERM)}
    threading.Thread(target=_pass_on, args=(source, told, sink, last), name="perdure-input", daemon=True).start()
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        # The descriptors stay: the thread may be at them, and the process is about to end.


def _pass_on(source: int, told: int, sink: int, last: Callable[[], None]) -> None:
    """Copy until the source ends or the signal comes."""
    with suppress(OSError):  # the reader is gone, or the terminal is
        while told not in (ready := select.select([source, told], [], [])[0]):
            if not (chunk := os.read(ready[0], _CHUNK)):
                break
            _write(sink, chunk)
    try:
        last()
    finally:
        os.close(sink)


def _write(sink: int, chunk: bytes) -> None:
    while chunk:
        chunk = chunk[os.write(sink, chunk) :]
