"""What a program has loaded lives for as long as the program, so the collector of garbage need not look at it.

It would look at all objects of the SDK's and pydantic's, again and again, and several times at the end: a fifth of the
processor time of a short command. For programs of our own only: a library leaves its user's collector alone.
"""

from __future__ import annotations

import gc

__all__ = ["keep"]


def keep() -> None:
    """Called once a program has imported what it needs."""
    gc.freeze()
