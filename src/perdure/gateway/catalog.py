"""The tools, prompts and resources of all backends as one list, and which backend a name belongs to.

The order is that of the configuration, and within a backend its own: the same on every call and in every gateway. A
backend that can't be reached keeps what it listed last; if it never did, the lists are without it and stale at once, so
that clients ask again. Only if there is nothing from any backend is that an error, and of `server/discover` never.

What clients are told of caching is the least that a backend allows: the shortest ttl, and private if one of the lists
is. A private list is kept per owner.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, SERVER_INFO_META_KEY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from perdure.domain.errors import ConfigurationError
from perdure.domain.model import JSONObject
from perdure.domain.names import DISCOVER

from . import merging
from .backends import Asker, Backend
from .faults import Fault, IdentityRefused
from .shelf import KINDS, PROMPTS, RESOURCES, TEMPLATES, TOOLS, Kind, Listed, Shelf

__all__ = ["Catalog", "fits"]

logger = logging.getLogger(__name__)

_LONGEST: Final = 3_600_000
"""Milliseconds that `server/discover` is fresh for at most."""
_BRACES: Final = re.compile(r"\{[^{}]*\}")
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
    of how to use it all; None: what the backends say.
    """

    def __init__(
        self, backends: Sequence[Backend], server_info: JSONObject, page: int = 500, instructions: str | None = None
    ) -> None:
        self._backends = [*backends]
        self._shelves = {backend.name: Shelf(backend) for backend in backends}
        self.server_info = server_info
        self._page = page
        self._instructions = instructions

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
            "ttlMs": min(each.ttl_ms for each in listed.values()),
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
        claims = (backend for backend in self._backends if backend.addresses and uri.startswith(backend.addresses))
        return next(claims, None)

    async def _listed(self, kind: Kind, asker: Asker) -> dict[str, Listed]:
        found, faults = await self._asked(kind, asker)
        if faults and len(faults) == len(self._backends) and not any(each.entries for each in found.values()):
            raise faults[0]
        return found

    async def _asked(self, kind: Kind, asker: Asker) -> tuple[dict[str, Listed], list[Fault]]:
        """What each of them lists; of one that does not, what it listed last; and what kept those from it."""
        found: dict[str, Listed] = {}
        faults: list[Fault] = []

        async def look(shelf: Shelf) -> None:
            try:
                found[shelf.backend.name] = await shelf.list(kind, asker)
            except Fault as fault:
                _note(shelf.backend, fault, kind, asker)
                faults.append(fault)
                found[shelf.backend.name] = replace(shelf.last(kind.method, asker) or _NONE, ttl_ms=0)

        async with anyio.create_task_group() as group:
            for shelf in self._shelves.values():
                group.start_soon(look, shelf)
        return found, faults

    # Discovery -------------------------------------------------------------------------------------------------------

    async def discover(self, asker: Asker) -> JSONObject:
        """The result of `server/discover`: what all of them together can do.

        There is one whatever becomes of the backends. Clients take an error for that of a server of the handshake era,
        and begin anew with a method that there is not; so why nothing can be done has to be said of what they ask next.
        """
        said: dict[str, Listed] = {}
        unheard: list[JSONObject] = []

        async def look(shelf: Shelf) -> None:
            try:
                said[shelf.backend.name] = await shelf.discovered(asker)
            except Fault:
                if (last := shelf.last(DISCOVER, asker)) is None:
                    unheard.append(merging.UNHEARD)
                else:
                    said[shelf.backend.name] = replace(last, ttl_ms=0)

        async with anyio.create_task_group() as group:
            for shelf in self._shelves.values():
                group.start_soon(look, shelf)
        there = [backend for backend in self._backends if backend.name in said]
        in_order = [said[backend.name] for backend in there]
        of_each = [each.entries[0] for each in in_order]
        instructions = self._instructions
        if instructions is None:
            instructions = merging.instructions([*zip(there, of_each, strict=True)])
        ttl = 0 if unheard else min(_LONGEST, *(each.ttl_ms for each in in_order))
        result: JSONObject = {
            "supportedVersions": [*MODERN_PROTOCOL_VERSIONS],
            "capabilities": merging.capabilities([*of_each, *unheard]),
            "resultType": "complete",
            "ttlMs": ttl,
            "cacheScope": "private" if unheard or any(each.private for each in in_order) else "public",
            "_meta": {SERVER_INFO_META_KEY: self.server_info},
        }
        return {**result, "instructions": instructions} if instructions else result

    async def discovered(self, backend: str, asker: Asker) -> JSONObject | None:
        """What one of them said of itself; None: it can't be asked."""
        try:
            return (await self._shelves[backend].discovered(asker)).entries[0]
        except Fault:
            return None

    async def discoveries(self, asker: Asker) -> dict[str, JSONObject | None]:
        """What each of them said of itself, by its name: the last time, if it can't be asked now; None: never."""
        said: dict[str, JSONObject | None] = {}

        async def look(backend: Backend) -> None:
            said[backend.name] = await self.discovered(backend.name, asker) or backend.upstream.discovered

        async with anyio.create_task_group() as group:
            for backend in self._backends:
                group.start_soon(look, backend)
        return said

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
        names = await self._names(kind, [backend for backend, _ in possible], asker)
        return next(((backend, theirs) for backend, theirs in possible if theirs in names[backend.name]), None)

    async def _names(self, kind: Kind, backends: Sequence[Backend], asker: Asker) -> dict[str, frozenset[str]]:
        """What each of them lists. One that can't be asked just now has nothing, as far as anybody can tell."""
        names: dict[str, frozenset[str]] = {}
        for backend in backends:
            try:
                names[backend.name] = await self._shelves[backend.name].names(kind, asker)
            except Fault as fault:
                logger.info("the backend %s did not list its %ss: %s", backend.name, kind.noun, fault)
                names[backend.name] = frozenset()
        return names

    async def resource(self, uri: str, asker: Asker) -> Backend | None:
        """The backend that has a resource: by how its address begins, as it lists it, or as a template of it has it."""
        if (claimed := self._claimed(uri)) is not None:
            return claimed
        open_ones = [backend for backend in self._backends if not backend.addresses]
        if len(open_ones) == 1:
            return open_ones[0]
        resources = await self._names(KINDS[RESOURCES], open_ones, asker)
        for backend in open_ones:
            if uri in resources[backend.name]:
                return backend
        templates = await self._names(KINDS[TEMPLATES], open_ones, asker)
        for backend in open_ones:
            of_it = templates[backend.name]
            if uri in of_it or any(fits(uri, template) for template in of_it):
                return backend
        return None


def _note(backend: Backend, fault: Fault, kind: Kind, asker: Asker) -> None:
    if isinstance(fault, IdentityRefused) and asker.token is None:
        return  # the gateway's own look at the start: who needs a token is listed once somebody brings one
    if (more := backend.seldom.due(f"lists: {type(fault).__name__}")) is not None:
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


def fits(uri: str, template: str) -> bool:
    """Whether an address may have come of a template (RFC 6570), roughly: what is in braces may be anything.

    Not by an expression, which a template with many braces would make slow.
    """
    first, *parts = _BRACES.split(template)
    if not parts:
        return uri == first
    *between, last = parts
    if not uri.startswith(first) or not uri.endswith(last):
        return False
    at, end = len(first), len(uri) - len(last)
    for part in between:
        at = uri.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return at <= end
