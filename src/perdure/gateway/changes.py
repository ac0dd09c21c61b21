"""The core's kinds of changes that a stream may tell of: how each is asked for, who may have it, and what says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from perdure.domain.model import JSONObject

from .shelf import PROMPTS, RESOURCES, TEMPLATES, TOOLS

__all__ = ["FLAGS", "UPDATED", "URIS", "Change", "flagged", "honored", "uris"]


@dataclass(frozen=True, slots=True)
class Change:
    """That lists of one kind have changed.

    `flag` asks for it, of a backend with `capability`; `method` is the notification that says it; `lists` are the
    methods whose results are others then.
    """

    flag: str
    capability: str
    method: str
    lists: tuple[str, ...]


FLAGS: Final[Mapping[str, Change]] = {
    change.flag: change
    for change in (
        Change("toolsListChanged", "tools", "notifications/tools/list_changed", (TOOLS,)),
        Change("promptsListChanged", "prompts", "notifications/prompts/list_changed", (PROMPTS,)),
        Change("resourcesListChanged", "resources", "notifications/resources/list_changed", (RESOURCES, TEMPLATES)),
    )
}
URIS: Final = "resourceSubscriptions"
"""What asks for changes of single resources, by their addresses."""
UPDATED: Final = "notifications/resources/updated"


def flagged(core: JSONObject) -> list[Change]:
    """The changes of lists that are asked for."""
    return [change for flag, change in FLAGS.items() if core.get(flag) is True]


def uris(core: JSONObject) -> list[str]:
    """The addresses of resources that are asked for."""
    return cast("list[str]", core.get(URIS) or [])


def honored(asked: JSONObject, said: JSONObject) -> JSONObject:
    """What of the core's kinds was asked for, as far as a backend says that it takes part."""
    kept: JSONObject = {change.flag: True for change in flagged(asked) if said.get(change.flag) is True}
    theirs = said.get(URIS)
    named = {each for each in cast("list[Any]", theirs) if isinstance(each, str)} if isinstance(theirs, list) else ()
    same = [uri for uri in uris(asked) if uri in named]
    return {**kept, URIS: cast("Any", same)} if same else kept
