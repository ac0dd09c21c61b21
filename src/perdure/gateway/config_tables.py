"""One table of a configuration file, whose values are taken out one by one, and what is wrong with them gathered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from perdure.domain.errors import InvalidDuration
from perdure.domain.policy import milliseconds

__all__ = ["Table"]


class Table:
    """One table of the file, whose values are taken out one by one; what is left nobody knows."""

    def __init__(self, values: Mapping[str, Any], place: str, errors: list[str]) -> None:
        self._values = dict(values)
        self._place = place
        self.errors = errors

    def wrong(self, key: str, why: str) -> None:
        self.errors.append(f"{self._place}{key}: {why}")

    def take(self, key: str) -> Any:
        return self._values.pop(key, None)

    def text(self, key: str, default: str | None = None) -> str:
        value = self.take(key)
        if isinstance(value, str) and value.strip():
            return value
        if value is not None or default is None:
            self.wrong(key, "is missing" if value is None else "write a text that is not empty")
        return default or ""

    def maybe(self, key: str) -> str | None:
        return self.text(key) if key in self._values else None

    def count(self, key: str, default: int) -> int:
        value = self.take(key)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            self.wrong(key, f"is {value!r}: write a whole number, at least 1")
            return default
        return value

    def flag(self, key: str) -> bool:
        value = self.take(key)
        if not isinstance(value, bool | None):
            self.wrong(key, "write true or false")
        return value is True

    def seconds(self, key: str, default: float) -> float:
        value = self.take(key)
        if value is None:
            return default
        try:
            return milliseconds(value, what=f"{self._place}{key}") / 1000
        except InvalidDuration as error:
            self.errors.append(str(error))
            return default

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.take(key)
        if value is None:
            return ()
        if isinstance(value, list) and all(isinstance(each, str) and each for each in cast("list[Any]", value)):
            return tuple(cast("list[str]", value))
        self.wrong(key, "write a list of texts")
        return ()

    def table(self, key: str) -> Table:
        value = self.take(key)
        if value is not None and not isinstance(value, dict):
            self.wrong(key, "write a table")
            value = None
        return Table(cast("dict[str, Any]", value or {}), f"{self._place}{key}.", self.errors)

    def has(self, key: str) -> bool:
        return key in self._values

    def rest(self) -> dict[str, Any]:
        """What is left, for somebody else to judge."""
        rest, self._values = self._values, {}
        return rest

    def end(self) -> None:
        """Whatever is left is an error."""
        for key in self._values:
            self.wrong(key, "there is no such key")
