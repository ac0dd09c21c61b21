"""Whose request it is: from a request's verified token to the `Owner` of tasks.

Only what the SDK verified counts; nothing that a client writes into a request has a say. Without authentication, stdio
is one local owner, and HTTP is one anonymous owner whose only secret is the task id.

An owner is a pair of names, and a name that names nobody (empty, blank) would be shared by all who come with it. So
what can't be one is refused, whoever decided it: of a wrong value the caller hears -32600, since it came with them; a
wrong type, or an exception, is the server's own mistake, -32603 to the client and a line in the log.

`identify=` is no async function on purpose. It is asked on every poll; whatever has to be looked up about a user is
looked up by the token verifier, which may wait, is asked before any of this, and puts what it found into the claims.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken, principal_components
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_REQUEST

from perdure.domain.limits import MAX_PRINCIPAL, MAX_TENANT
from perdure.domain.model import Owner
from perdure.store.codec import is_plain

from .models import RequestContext
from .refusals import Seldom

__all__ = ["ANONYMOUS", "LOCAL", "Identify", "by_token", "checked", "is_one_of_many", "of_token"]

logger = logging.getLogger(__name__)

Identify = Callable[[RequestContext], Owner]
"""Says whose request it is. Called on every request that touches a task; must not block."""

_NAMELESS: Final = ""
ANONYMOUS = Owner(_NAMELESS, "anonymous")
LOCAL = Owner(_NAMELESS, "local")

_WHY: Final = (
    "its principal is empty, or one of its texts is blank, holds a null or a lone surrogate, or takes more than "
    f"{MAX_TENANT} (the tenant) or {MAX_PRINCIPAL} bytes (the principal)"
)


def is_one_of_many(owner: Owner) -> bool:
    """Whether the bounds of one owner hold for it, so that there is something left for others.

    Without authentication all clients are one owner. Over HTTP one of them could use up what is there for all; over
    stdio there are no others.
    """
    return owner not in (ANONYMOUS, LOCAL)


def by_token(tenant_claim: str | None = None) -> Identify:
    """The default: issuer, client and subject of the access token are the principal, `tenant_claim` of it the tenant.

    A token that lacks the claim belongs to the nameless tenant. The claim's value is a text that can be a name, or an
    integer, which is the same as its decimal text. A token that has anything else there (null, an empty text, a list)
    names no tenant, and must not fall into one that others share: its requests are refused with -32600. So are those of
    a token whose issuer, client or subject is there and no name.
    """

    def identify(ctx: RequestContext) -> Owner:
        token = get_access_token()
        return LOCAL if token is None and ctx.request is None else of_token(token, tenant_claim)

    return identify


def of_token(token: AccessToken | None, tenant_claim: str | None = None) -> Owner:
    """Whose request it is that came over HTTP with this verified token; None: nobody was asked.

    Raises:
        MCPError: -32600, the token names nobody, as `by_token` has it.
    """
    if token is None:
        return ANONYMOUS
    claims = token.claims or {}
    tenant = _tenant(claims[tenant_claim]) if tenant_claim is not None and tenant_claim in claims else _NAMELESS
    return Owner(tenant, _principal(token))


def _principal(token: AccessToken) -> str:
    client, _, subject = principal_components(token)
    issuer: object = (token.claims or {}).get("iss")  # as it is: the SDK makes a text of anything
    if _is_name(client, MAX_PRINCIPAL) and all(
        part is None or _is_name(part, MAX_PRINCIPAL) for part in (issuer, subject)
    ):
        principal = json.dumps([issuer, client, subject], separators=(",", ":"))
        if len(principal) <= MAX_PRINCIPAL:
            return principal
    raise MCPError(INVALID_REQUEST, "The access token names nobody whom a task can belong to")


def _tenant(claim: object) -> str:
    if isinstance(claim, int) and not isinstance(claim, bool) and abs(claim) < 10 ** (MAX_TENANT - 1):
        return str(claim)
    if _is_name(claim, MAX_TENANT):
        return cast("str", claim)
    raise MCPError(INVALID_REQUEST, "The access token names no tenant that can be used")


def _is_name(value: object, most: int) -> bool:
    """Whether it is a text that names somebody, that every store takes, and that is no longer than it may be."""
    return isinstance(value, str) and len(value) <= most and not value.isspace() and value != "" and _fits(value, most)


def _fits(text: str, most: int) -> bool:
    return is_plain(text) and len(text.encode()) <= most


def checked(own: Identify) -> Identify:
    """`own`, a function of the server's, but that only what can be an owner comes of it.

    Raises, when called:
        MCPError: that of `own`; -32600 if a name that it returns can't be one; -32603 if it raises anything else, or
            returns anything else. The last two are in the log, of each kind a line a minute.
    """
    seldom = Seldom()

    def identify(ctx: RequestContext) -> Owner:
        try:
            found: object = own(ctx)
        except MCPError:
            raise
        except Exception as error:  # the boundary to the server's own function
            kind = type(error).__name__
            if (more := seldom.due(kind)) is not None:
                logger.error("identify= raised %s, which is -32603 to the client%s", kind, more, exc_info=error)  # noqa: TRY400
            raise MCPError(INTERNAL_ERROR, "Internal error") from None
        return _owner(found, seldom)

    return identify


def _owner(found: object, seldom: Seldom) -> Owner:
    if not (isinstance(found, Owner) and _are_texts(found.tenant, found.principal)):
        if isinstance(found, Coroutine):
            cast("Coroutine[Any, Any, Any]", found).close()  # or it would complain that nobody awaited it
        kind = type(cast("object", found)).__name__
        if (more := seldom.due(kind)) is not None:
            said = "an Owner of other things than texts" if kind == Owner.__name__ else f"a {kind}, and no Owner"
            logger.error("identify= returned %s, which is -32603 to the client%s", said, more)
        raise MCPError(INTERNAL_ERROR, "Internal error")
    if _can_be(found):
        return found
    if (more := seldom.due("name")) is not None:
        logger.warning("identify= returned an Owner that can't be one, which is -32600 to the client: %s%s", _WHY, more)
    raise MCPError(INVALID_REQUEST, "The request names nobody whom a task can belong to")


def _are_texts(*values: object) -> bool:
    return all(isinstance(value, str) for value in values)


def _can_be(owner: Owner) -> bool:
    tenant = owner.tenant
    return (tenant == _NAMELESS or _is_name(tenant, MAX_TENANT)) and _is_name(owner.principal, MAX_PRINCIPAL)
