"""Ending a program on time. The engine gives work that ignores its cancellation up; the interpreter does not.

Once a server has stopped, `asyncio.run` still waits for each task that is left on its loop, and the interpreter for
each thread, as long as they take. Nobody can stop them, and their tasks were handed over; so the process ends without
them. While the server runs nothing here does anything, and a process that ends by itself is not disturbed: what it has
registered with `atexit` may take its time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Coroutine
from typing import Any, Final, Self

__all__ = ["DRAIN_SECONDS", "STARTUP_FAILURE", "Leaving"]

DRAIN_SECONDS: Final = 5
"""How long open requests may go on once a server was told to stop; running tasks have their own grace after that."""
STARTUP_FAILURE: Final = 3
"""The exit code, as uvicorn has it."""

_PATIENCE: Final = 1.0
"""Seconds for the loop and the threads to end by themselves, which takes those that can milliseconds; and again for
writing what is buffered."""


class Leaving:
    """The end of one program. A context that the loop runs in; `last` wraps what runs on the loop."""

    def __init__(self) -> None:
        self._gone = threading.Event()

    async def last(self, serving: Coroutine[Any, Any, None]) -> None:
        """Await what the program does on its loop. From its end on the process has little time left."""
        status = 1
        try:
            await serving
            status = 0
        except asyncio.CancelledError:  # Ctrl-C, and all that had to be done on the way out was done
            status = 0
            raise
        finally:
            threading.Thread(target=self._leave, args=(status,), name="perdure-leaving", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """The loop is closed: wait for the threads that are left, as the interpreter would."""
        for thread in threading.enumerate():
            if thread is not threading.main_thread() and not thread.daemon:
                thread.join()
        self._gone.set()

    def _leave(self, status: int) -> None:
        if self._gone.wait(_PATIENCE):
            return
        # Whoever is stuck may be stuck with a handler's lock or with a full pipe: others would wait for it too.
        flushing = threading.Thread(target=_flush, name="perdure-flushing", daemon=True)
        flushing.start()
        flushing.join(_PATIENCE)
        os._exit(status)


def _flush() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # its descriptor was closed when the process began
            stream.flush()
