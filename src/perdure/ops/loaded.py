"""What a program of ours does about its own loading, which takes most of the time of a short command.

What it has loaded lives for as long as the program, so the collector of garbage need not look at it. It would look at
all objects of the SDK's and pydantic's, again and again, and several times at the end: a fifth of the processor time of
a short command. For programs of our own only: a library leaves its user's collector alone.

And Ctrl-C ends a program that only loads as it ends one in C, at once and without a word: there is nothing to clean up,
and Python would tell in forty lines which module it was just at. This module is loaded before anything else, so it
imports next to nothing.
"""

import gc
import signal

__all__ = ["Loading", "keep"]


class Loading:
    """The time in which a program imports what it needs; begins when this is made."""

    def __init__(self) -> None:
        gc.disable()
        # A shell's background process was told to ignore Ctrl-C, and still is.
        self._interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._interruptible:
            signal.signal(signal.SIGINT, signal.SIG_DFL)

    def over(self) -> None:
        """From now on Ctrl-C is an exception, for there may be things to clean up."""
        if self._interruptible:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        keep()
        gc.enable()


def keep() -> None:
    """Called once a program has imported what it needs."""
    gc.freeze()
