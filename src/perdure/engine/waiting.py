"""What a run has come to wait for: noted by its verbs, and stored once the work has parked."""

from __future__ import annotations

from collections.abc import Collection

from perdure.domain.errors import InputKeyReused
from perdure.domain.journal import Entry, Waits
from perdure.domain.model import Asked

__all__ = ["Waiting"]


class Waiting:
    """The notes of one run. It is false as long as there is nothing to wait for."""

    def __init__(self) -> None:
        self._asked: dict[str, Asked] = {}
        self._begun: list[tuple[Entry, int | None]] = []
        self._places: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._asked or self._places)

    @property
    def keys(self) -> Collection[str]:
        """The keys of the questions that are to be asked."""
        return self._asked.keys()

    def for_answer(self, key: str, asked: Asked) -> None:
        """Ask a question. Where it was asked first counts.

        Raises:
            InputKeyReused: the key stands for another one, which is to be asked too.
        """
        if self._asked.setdefault(key, asked).request != asked.request:
            raise InputKeyReused(key)

    def begin(self, entry: Entry, wake_in_ms: int | None) -> None:
        """Let an entry enter the journal with the wait, to wake the run in so many milliseconds, or never."""
        self._begun.append((entry, wake_in_ms))

    def for_any(self, places: Collection[str]) -> None:
        """Wait until one of the entries at `places` is over, or its time has come."""
        self._places.update(places)

    def forget_inside(self, gather: str) -> None:
        """Branches came to wait, but their gather ended in something else: that is no reason to park."""
        inside = f"{gather}."
        self._places = {place for place in self._places if not place.startswith(inside)}
        self._asked = {
            key: asked
            for key, asked in self._asked.items()
            if asked.place is None or not asked.place.startswith(inside)
        }

    def all(self, *, minds_cancel: bool) -> Waits:
        """All of it, as the store takes it."""
        return Waits(self._asked, tuple(self._begun), frozenset(self._places), minds_cancel=minds_cancel)
