"""Reading a configuration file table by table, with all that is wrong in it gathered and none of it raised.

Each value is taken out of its table, so that what nobody took in the end is a key that nobody knows. A value that is
wrong is noted with its place, and its default stands for it, so that the rest can be looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from perdure.domain.errors import InvalidDuration
from perdure.domain.policy import milliseconds

__all__ = ["Table"]


class Table:
    """One table of the file. `place`: its name with a dot at the end; `errors`: where what is wrong is noted."""

    def __init__(self, values: Mapping[str, Any], place: str, errors: list[str]) -> None:
        self._values = dict(values)
        self._place = place
        self.errors = errors

    def wrong(self, key: str, why: str) -> None:
        """Note what is wrong with a value."""
        self.errors.append(f"{self._place}{key}: {why}")

    def take(self, key: str) -> Any:
        """A value as it is; None: it is not there."""
        return self._values.pop(key, None)

    def text(self, key: str, default: str | None = None) -> str:
        """A text that is not empty. Without a default it has to be there."""
        value = self.take(key)
        if isinstance(value, str) and value.strip():
            return value
        if value is not None or default is None:
            self.wrong(key, "is missing" if value is None else "write a text that is not empty")
        return default or ""

    def maybe(self, key: str) -> str | None:
        """The same, if it is there."""
        return self.text(key) if key in self._values else None

    def count(self, key: str, default: int) -> int:
        """A whole number, at least 1."""
        value = self.take(key)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            self.wrong(key, f"is {value!r}: write a whole number, at least 1")
            return default
        return value

    def flag(self, key: str) -> bool:
        """True or false; false if it is not there."""
        value = self.take(key)
        if not isinstance(value, bool | None):
            self.wrong(key, "write true or false")
        return value is True

    def seconds(self, key: str, default: float) -> float:
        """A duration, in seconds."""
        value = self.take(key)
        if value is None:
            return default
        try:
            return milliseconds(value, what=f"{self._place}{key}") / 1000
        except InvalidDuration as error:
            self.errors.append(str(error))
            return default

    def part(self, key: str, default: float) -> float:
        """A number above 0, and at most 1."""
        value = self.take(key)
        if value is None:
            return default
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1:
            return float(value)
        self.wrong(key, f"is {value!r}: write a number above 0, and at most 1")
        return default

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts."""
        value = self.take(key)
        if value is None:
            return ()
        if isinstance(value, list) and all(isinstance(each, str) and each for each in cast("list[Any]", value)):
            return tuple(cast("list[str]", value))
        self.wrong(key, "write a list of texts")
        return ()

    def table(self, key: str) -> Table:
        """The table of that name, empty if it is not there."""
        value = self.take(key)
        if value is not None and not isinstance(value, dict):
            self.wrong(key, "write a table")
            value = None
        return Table(cast("dict[str, Any]", value or {}), f"{self._place}{key}.", self.errors)

    def tables(self, key: str) -> list[Table]:
        """The tables of a list, of which there has to be one at least."""
        value = self.take(key)
        if isinstance(value, list) and value and all(isinstance(each, dict) for each in cast("list[Any]", value)):
            given = cast("list[dict[str, Any]]", value)
            return [Table(each, f"{self._place}{key}[{at}].", self.errors) for at, each in enumerate(given)]
        self.wrong(key, "write a list of tables")
        return []

    def has(self, key: str) -> bool:
        """Whether the value is there, and nobody has taken it yet."""
        return key in self._values

    def rest(self) -> dict[str, Any]:
        """What is left, for somebody else to judge."""
        rest, self._values = self._values, {}
        return rest

    def end(self) -> None:
        """Whatever is left is an error."""
        for key in self._values:
            self.wrong(key, "there is no such key")
