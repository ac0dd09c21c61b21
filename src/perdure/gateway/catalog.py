"""The tools, prompts and resources of all backends as one list, and which backend a name belongs to.

The order is that of the configuration, and within a backend its own: the same on every call and in every gateway. A
backend that can't be reached keeps what it listed last; if it never did, the lists are without it and stale at once, so
that clients ask again. Only if there is nothing from any backend is that an error, and of `server/discover` never.

What clients are told of caching is the least that a backend allows: what is left of the shortest ttl, and private if
one of the lists is. A private list is kept per owner.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, SERVER_INFO_META_KEY

from perdure.domain.errors import ConfigurationError
from perdure.domain.model import JSONObject

from .backends import Asker, Backend, of_each
from .discovering import Discovery
from .faults import Fault, IdentityRefused
from .shelf import KINDS, PROMPTS, RESOURCES, TEMPLATES, TOOLS, Kind, Listed, Shelf
from .templates import fits

__all__ = ["Catalog"]

logger = logging.getLogger(__name__)

_NONE: Final = Listed((), 0, private=False)


@dataclass(frozen=True, slots=True)
class Named:
    """An entry of a list under the name that clients know it by, and the backend that it is of."""

    name: str
    entry: JSONObject
    backend: Backend


class Catalog:
    """What all backends together have.

    `server_info`: how the gateway presents itself. `page`: entries in one page. `instructions`: what clients are told
    of how to use it all; None: what the backends say. `discovery`: of the same backends.
    """

    def __init__(
        self, backends: Sequence[Backend], server_info: JSONObject, page: int = 500, instructions: str | None = None
    ) -> None:
        self._backends = [*backends]
        self._shelves = {backend.name: Shelf(backend) for backend in backends}
        self.server_info = server_info
        self._page = page
        claims = [(start, backend) for backend in backends for start in backend.addresses]
        self._claims = sorted(claims, key=lambda claim: -len(claim[0]))  # the one that says most of an address counts
        self.discovery = Discovery(self._backends, self._shelves, server_info, instructions)

    async def check(self, asker: Asker) -> None:
        """That no two backends have the same name, as far as they can be asked.

        Raises:
            ConfigurationError: two of them have; the message says which, and what to do.
        """
        for kind in KINDS.values():
            seen: dict[str, str] = {}
            listed, faults = await self._asked(kind, asker)
            self._note_unlisted(kind, listed, {fault.backend for fault in faults})
            for each in self._named(kind, listed):
                if (other := seen.setdefault(each.name, each.backend.name)) != each.backend.name:
                    raise ConfigurationError(
                        f"the backends {other} and {each.backend.name} both have the {kind.noun} {each.name!r}: "
                        + kind.remedy
                    )

    def _note_unlisted(self, kind: Kind, listed: dict[str, Listed], silent: set[str]) -> None:
        """Names of a map that lead nowhere: typing mistakes, unless the backend is to have them later."""
        for backend in self._backends:
            naming = None if backend.name in silent else kind.naming(backend)
            for ours, theirs in ({} if naming is None else naming.mapped or {}).items():
                if theirs not in listed[backend.name].names:
                    said = "the backend %s lists no %s %r, so clients find no %r"
                    logger.warning(said, backend.name, kind.noun, theirs, ours)

    def forget(self, backend: str, methods: Iterable[str]) -> None:
        """The backend's lists of these methods have changed."""
        for method in methods:
            self._shelves[backend].forget(KINDS[method])

    # Lists -----------------------------------------------------------------------------------------------------------

    async def page(self, kind: Kind, cursor: str | None, asker: Asker) -> JSONObject:
        """The result of a list method.

        Raises:
            MCPError: -32602, the cursor is none of the list as it is now.
            Fault: no backend has answered.
        """
        listed = await self._listed(kind, asker)
        seen: set[str] = set()
        entries: list[JSONObject] = []
        for each in self._named(kind, listed):
            if each.name not in seen:
                seen.add(each.name)
                entries.append(each.entry)
        start, digest = 0, ""
        if cursor is not None or len(entries) > self._page:
            digest = _digest(entries, kind)
            start = 0 if cursor is None else _start(cursor, digest)
        result: JSONObject = {
            kind.field: cast("Any", entries[start : start + self._page]),
            "resultType": "complete",
            "ttlMs": min(each.left_ms for each in listed.values()),
            "cacheScope": "private" if any(each.private for each in listed.values()) else "public",
            "_meta": {SERVER_INFO_META_KEY: self.server_info},
        }
        if start + self._page < len(entries):
            result["nextCursor"] = _cursor(start + self._page, digest)
        return result

    def _named(self, kind: Kind, listed: dict[str, Listed]) -> Iterator[Named]:
        for backend in self._backends:
            naming = kind.naming(backend)
            for entry in listed[backend.name].entries:
                theirs = cast("str", entry[kind.key])
                ours = self._address(backend, theirs) if naming is None else naming.exposed(theirs)
                if ours is not None:
                    yield Named(ours, entry if ours == theirs else {**entry, kind.key: ours}, backend)

    def _address(self, backend: Backend, uri: str) -> str | None:
        """The address of a resource, if it may be one of this backend's."""
        claimed = self._claimed(uri)
        may_be = not backend.addresses if claimed is None else claimed is backend
        return uri if may_be else None

    def _claimed(self, uri: str) -> Backend | None:
        """The backend whose addresses begin like this one, if the configuration says so of one."""
        return next((backend for start, backend in self._claims if uri.startswith(start)), None)

    async def _listed(self, kind: Kind, asker: Asker) -> dict[str, Listed]:
        found, faults = await self._asked(kind, asker)
        if faults and len(faults) == len(self._backends) and not any(each.entries for each in found.values()):
            raise faults[0]
        return found

    async def _asked(self, kind: Kind, asker: Asker) -> tuple[dict[str, Listed], list[Fault]]:
        """What each of them lists; of one that does not, what it listed last; and what kept those from it."""
        faults: list[Fault] = []

        async def look(backend: Backend) -> Listed:
            shelf = self._shelves[backend.name]
            try:
                return await shelf.list(kind, asker)
            except Fault as fault:
                _note(backend, fault, kind, asker)
                faults.append(fault)
                return replace(shelf.last(kind.method, asker) or _NONE, ttl_ms=0)

        return await of_each(self._backends, look), faults

    # Whose is it -----------------------------------------------------------------------------------------------------

    async def tool(self, name: str, asker: Asker) -> tuple[Backend, str] | None:
        """The backend that has a tool, and its name there."""
        return await self._find(KINDS[TOOLS], name, asker)

    async def honours_keys(self, backend: str, theirs: str, asker: Asker) -> bool:
        """Whether a backend says, being asked now, that calls of a tool under one idempotency key are one call."""
        try:
            return theirs in (await self._shelves[backend].list(KINDS[TOOLS], asker, since=anyio.current_time())).keyed
        except Fault:
            return False

    async def prompt(self, name: str, asker: Asker) -> tuple[Backend, str] | None:
        """The same for a prompt."""
        return await self._find(KINDS[PROMPTS], name, asker)

    async def _find(self, kind: Kind, name: str, asker: Asker) -> tuple[Backend, str] | None:
        possible = [
            (backend, theirs)
            for backend in self._backends
            if (naming := kind.naming(backend)) is not None and (theirs := naming.theirs(name)) is not None
        ]
        # A name that begins like a prefix, or is in a map, can be nobody else's unless a backend exposes any name.
        if len(possible) <= 1:
            return possible[0] if possible else None
        # What is in no list as it was known last may have been added since: the client may have listed elsewhere.
        for fresh in (False, True):
            names = await self._names(kind, [backend for backend, _ in possible], asker, fresh=fresh)
            for backend, theirs in possible:
                if theirs in names[backend.name]:
                    return backend, theirs
        return None

    async def _names(
        self, kind: Kind, backends: Sequence[Backend], asker: Asker, *, fresh: bool
    ) -> dict[str, frozenset[str]]:
        """What each of them lists. One that can't be asked just now has nothing, as far as anybody can tell."""
        names: dict[str, frozenset[str]] = {}
        for backend in backends:
            try:
                names[backend.name] = await self._shelves[backend.name].names(kind, asker, fresh=fresh)
            except Fault as fault:
                _note(backend, fault, kind, asker)
                names[backend.name] = frozenset()
        return names

    async def resource(self, uri: str, asker: Asker, *, fresh: bool = True) -> Backend | None:
        """The backend that has a resource: by how its address begins, as it lists it, or as a template of it has it.

        `fresh`: whether to look at the lists anew if none of them has it as it was known last.
        """
        if (claimed := self._claimed(uri)) is not None:
            return claimed
        open_ones = [backend for backend in self._backends if not backend.addresses]
        if len(open_ones) == 1:
            return open_ones[0]
        found = await self._listing(uri, open_ones, asker, fresh=False)
        return await self._listing(uri, open_ones, asker, fresh=True) if found is None and fresh else found

    async def _listing(self, uri: str, open_ones: Sequence[Backend], asker: Asker, *, fresh: bool) -> Backend | None:
        resources = await self._names(KINDS[RESOURCES], open_ones, asker, fresh=fresh)
        for backend in open_ones:
            if uri in resources[backend.name]:
                return backend
        templates = await self._names(KINDS[TEMPLATES], open_ones, asker, fresh=fresh)
        for backend in open_ones:
            of_it = templates[backend.name]
            if uri in of_it or any(fits(uri, template) for template in of_it):
                return backend
        return None


def _note(backend: Backend, fault: Fault, kind: Kind, asker: Asker) -> None:
    if isinstance(fault, IdentityRefused) and asker.token is None:
        return  # the gateway's own look at the start: who needs a token is listed once somebody brings one
    if (more := backend.upstream.seldom.due(f"lists: {type(fault).__name__}")) is not None:
        logger.warning("the backend %s did not list its %ss: %s%s", backend.name, kind.noun, fault, more)


def _digest(entries: list[JSONObject], kind: Kind) -> str:
    names = "\0".join(cast("str", entry[kind.key]) for entry in entries)
    return hashlib.sha256(names.encode(errors="surrogatepass")).hexdigest()[:16]


def _cursor(start: int, digest: str) -> str:
    return base64.urlsafe_b64encode(f"{start}:{digest}".encode()).decode()


def _start(cursor: str, digest: str) -> int:
    try:
        start, _, said = base64.urlsafe_b64decode(cursor.encode()).decode().partition(":")
        if said == digest and start.isdecimal() and len(start) < 10:
            return int(start)
    except (binascii.Error, ValueError):
        pass
    raise MCPError(INVALID_PARAMS, "Invalid cursor")
