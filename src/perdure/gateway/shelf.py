"""What one backend lists, kept for as long as it says that may be kept."""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, cast

import anyio
import anyio.lowlevel
from mcp_types import METHOD_NOT_FOUND

from perdure.domain.model import JSONObject, Owner
from perdure.domain.names import DISCOVER

from . import judging
from .backends import Asker, Backend, Naming
from .faults import BackendBroken, BackendTimeout, BackendUnavailable, Fault
from .rawjson import encode
from .retrying import honours_keys, marked, unmarked

__all__ = ["KINDS", "PROMPTS", "RESOURCES", "TEMPLATES", "TOOLS", "Kind", "Listed", "Shelf"]

TOOLS: Final = "tools/list"
PROMPTS: Final = "prompts/list"
RESOURCES: Final = "resources/list"
TEMPLATES: Final = "resources/templates/list"

logger = logging.getLogger(__name__)

_PAGES: Final = 1_000
_WITHIN: Final = 15.0
"""Seconds for all pages of one list: everybody who lists tools waits for the slowest backend."""
_ENTRIES: Final = 100_000
"""Of one list, at most: a backend may make up pages without end."""
_AT_ONCE: Final = 200
"""Entries that are judged without a pause: 2 ms, or 5 where one of them is none."""
_OWNERS: Final = 1_000
"""Owners whose private lists are kept."""
_LONGEST: Final = 86_400_000
"""Milliseconds that a list is fresh for at most."""
_LATELY: Final = 5.0
"""Seconds for which a list that does not have a name is believed not to."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of list: its method, the field and the key of its entries, and how names of it are exposed."""

    method: str
    field: str
    key: str
    capability: str
    noun: str
    naming: Callable[[Backend], Naming | None]
    remedy: str


_RENAME: Final = "give one of them a prefix, or map the names"

KINDS: Final[Mapping[str, Kind]] = {
    kind.method: kind
    for kind in (
        Kind(TOOLS, "tools", "name", "tools", "tool", lambda backend: backend.tools, _RENAME),
        Kind(PROMPTS, "prompts", "name", "prompts", "prompt", lambda backend: backend.prompts, _RENAME),
        Kind(RESOURCES, "resources", "uri", "resources", "resource", lambda _: None, "say in `addresses` whose it is"),
        Kind(
            TEMPLATES,
            "resourceTemplates",
            "uriTemplate",
            "resources",
            "resource template",
            lambda _: None,
            "say in `addresses` whose it is",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Listed:
    """A whole list, all its pages.

    `since`: when it was asked for, `until`: when it is stale, moments of the event loop's clock. `keyed`: the tools
    that honour idempotency keys.
    """

    entries: tuple[JSONObject, ...]
    ttl_ms: int
    private: bool
    since: float = 0.0
    until: float = 0.0
    names: frozenset[str] = field(default_factory=frozenset[str], repr=False)
    keyed: frozenset[str] = field(default_factory=frozenset[str], repr=False)

    @property
    def left_ms(self) -> int:
        """Milliseconds for which it is fresh yet: what a client may keep it for, who gets it late."""
        return max(0, min(self.ttl_ms, int((self.until - anyio.current_time()) * 1000)))


@dataclass(eq=False, slots=True)
class _Turn:
    """Whoever asks for one thing, one after the other. `fault`: how the last of them fared, at the moment `failed`."""

    lock: anyio.Lock = field(default_factory=anyio.Lock)
    fault: Fault | None = None
    failed: float = 0.0

    def raise_since(self, arrived: float) -> None:
        """For whoever came before it was known that the backend does not answer: who waited need not find out anew."""
        if self.fault is not None and self.failed >= arrived:
            raise self.fault.again()


class Shelf:
    """The lists of one backend."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._kept: OrderedDict[tuple[str, Owner | None], Listed] = OrderedDict()
        self._turns: dict[tuple[str, Owner | None], _Turn] = {}
        self._private: set[str] = set()
        self._changed: dict[str, float] = {}

    def last(self, method: str, asker: Asker) -> Listed | None:
        """The list of this method as it was known last, fresh or not."""
        return self._kept.get((method, asker.owner)) or self._kept.get((method, None))

    async def names(self, kind: Kind, asker: Asker, *, fresh: bool) -> frozenset[str]:
        """The names in a list, for whoever asks whose a name is: as they were known last, unless they must be fresh.

        Then they are asked for anew although the ttl would let the list be kept: that says for how long a list may be
        shown, and not that nothing is there besides. Names that nobody has must be no lever, though: if it was asked
        for just now, it goes by its ttl.
        """
        last = self.last(kind.method, asker)
        if last is not None and not fresh:
            return last.names
        lately = anyio.current_time() - _LATELY
        since = lately if last is not None and last.since < lately else None
        return (await self.list(kind, asker, since)).names

    def forget(self, kind: Kind) -> None:
        """What is kept of a list is no longer so, and neither is what is on its way: it may be from before."""
        self._changed[kind.method] = anyio.current_time()
        for key in [key for key in self._kept if key[0] == kind.method]:
            del self._kept[key]

    async def list(self, kind: Kind, asker: Asker, since: float | None = None) -> Listed:
        """The whole list.

        `since`: a moment of the event loop's clock. What was asked for before is not good enough, whatever its ttl;
        what was asked for since then is. None: it goes by the ttl.

        Raises:
            Fault: the backend does not say.
        """
        said = (await self.discovered(asker, since)).entries[0]
        capabilities = said.get("capabilities")
        if not isinstance(capabilities, dict) or kind.capability not in capabilities:
            return _listed((), (_LONGEST, False))
        keyed = honours_keys(said)
        return await self._fresh(kind.method, asker, since, lambda: self._all_pages(kind, asker, keyed=keyed))

    async def discovered(self, asker: Asker, since: float | None = None) -> Listed:
        """The result of `server/discover`, as a list of one. `since`: as of `list`.

        Raises:
            Fault: the backend does not say.
        """

        async def ask() -> Listed:
            result = await self._ask(DISCOVER, {}, asker)
            good, left_out = judging.capabilities(result.get("capabilities", {}))
            if left_out:
                self._tell(f"{left_out} capabilities that are none")
            return _listed(({**result, "capabilities": good},), _hint(result))

        return await self._fresh(DISCOVER, asker, since, ask)

    async def _fresh(
        self, method: str, asker: Asker, since: float | None, ask: Callable[[], Awaitable[Listed]]
    ) -> Listed:
        if (kept := self._current(method, asker, since)) is not None:
            return kept
        # Whoever asks while somebody else does waits for that answer, if it may be for both. One that was asked for
        # since they came is good enough, whatever its ttl: else a crowd would ask one after the other.
        arrived, key = anyio.current_time(), (method, asker.owner if method in self._private else None)
        turn = self._turns.setdefault(key, _Turn())
        try:
            async with turn.lock:
                for good_enough in (since, arrived if since is None else since):
                    if (kept := self._current(method, asker, good_enough)) is not None:
                        return kept
                turn.raise_since(arrived)
                return await self._ask_for_all(method, asker, ask, turn)
        finally:
            if not turn.lock.statistics().tasks_waiting and not turn.lock.locked():
                self._turns.pop(key, None)

    async def _ask_for_all(
        self, method: str, asker: Asker, ask: Callable[[], Awaitable[Listed]], turn: _Turn
    ) -> Listed:
        began = anyio.current_time()
        try:
            listed = replace(await ask(), since=began)
            if began <= self._changed.get(method, -math.inf):
                listed = replace(listed, ttl_ms=0, until=0.0)
            return self._keep(method, asker, listed)
        except (BackendTimeout, BackendUnavailable) as fault:  # whoever asks; other faults may be about who it is
            turn.fault, turn.failed = fault, anyio.current_time()
            raise

    def _keep(self, method: str, asker: Asker, listed: Listed) -> Listed:
        if listed.private:
            self._private.add(method)
        key = (method, asker.owner if listed.private else None)
        self._kept[key] = listed
        self._kept.move_to_end(key)
        while len(self._kept) > _OWNERS:
            self._kept.popitem(last=False)
        return listed

    def _current(self, method: str, asker: Asker, since: float | None) -> Listed | None:
        for owner in (asker.owner, None):
            kept = self._kept.get((method, owner))
            if kept is not None and (anyio.current_time() < kept.until if since is None else kept.since >= since):
                return kept
        return None

    async def _all_pages(self, kind: Kind, asker: Asker, *, keyed: bool) -> Listed:
        entries: list[JSONObject] = []
        hints: list[tuple[int, bool]] = []
        cursors: set[str] = set()
        params: JSONObject = {}
        deadline, size = anyio.current_time() + _WITHIN, 0
        for _ in range(_PAGES):
            result = await self._ask(kind.method, params, asker)
            entries += await self._entries(kind, result)
            hints.append(_hint(result))
            cursor = result.get("nextCursor")
            if not isinstance(cursor, str):
                hint = (min(ttl for ttl, _ in hints), any(private for _, private in hints))
                # To clients, all backends are one that honours keys if any does. So which tool does must be true.
                entries = entries if keyed else [unmarked(entry) for entry in entries]
                return _listed(tuple(entries), hint, kind.key)
            size += len(encode(result))
            if cursor in cursors or len(entries) > _ENTRIES or size > self.backend.upstream.bounds.body:
                break
            if anyio.current_time() > deadline:
                raise BackendTimeout(self.backend.name, begun=False, counts=False)
            cursors.add(cursor)
            params = {"cursor": cursor}
        raise BackendBroken(self.backend.name, f"its {kind.method} never ends")

    async def _ask(self, method: str, params: JSONObject, asker: Asker) -> JSONObject:
        message = await self.backend.ask(method, params, asker)
        error = message.get("error")
        if not isinstance(error, dict):
            return cast("JSONObject", message["result"])
        if error.get("code") == METHOD_NOT_FOUND and method != DISCOVER:
            return {}
        raise BackendBroken(self.backend.name, f"it answered {method} with an error", counts=False)

    async def _entries(self, kind: Kind, result: JSONObject) -> list[JSONObject]:
        found = result.get(kind.field, [])
        if not isinstance(found, list):
            raise BackendBroken(self.backend.name, f"its {kind.method} is no list")
        if len(found) > _ENTRIES:
            raise BackendBroken(self.backend.name, f"its {kind.method} never ends")
        entries: list[JSONObject] = []
        for start in range(0, len(found), _AT_ONCE):
            entries += judging.entries(kind.method, kind.field, found[start : start + _AT_ONCE])
            await anyio.lowlevel.checkpoint()
        if len(entries) < len(found):
            self._tell(f"{len(found) - len(entries)} {kind.noun}s that are none")
        return entries

    def _tell(self, what: str) -> None:
        if (more := self.backend.upstream.seldom.due(what)) is not None:
            logger.warning("the backend %s lists %s, which are left out%s", self.backend.name, what, more)


def _listed(entries: tuple[JSONObject, ...], hint: tuple[int, bool], key: str | None = None) -> Listed:
    ttl, private = hint
    names = frozenset(cast("str", entry[key]) for entry in entries if key is not None)
    keyed = frozenset(cast("str", entry[key]) for entry in entries if key is not None and marked(entry))
    return Listed(entries, ttl, private, until=anyio.current_time() + ttl / 1000, names=names, keyed=keyed)


def _hint(result: JSONObject) -> tuple[int, bool]:
    """For how long a result is fresh, in milliseconds (without a word: not at all), and whether only for who asked."""
    ttl = result.get("ttlMs")
    fresh = ttl if isinstance(ttl, int) and not isinstance(ttl, bool) and ttl > 0 else 0
    return min(fresh, _LONGEST), result.get("cacheScope") != "public"
