"""Whose request it is: from a request's verified token to the `Owner` of tasks.

Only what the SDK verified counts; nothing that a client writes into a request has a say. Without authentication, stdio
is one local owner, and HTTP is one anonymous owner whose only secret is the task id.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import principal_components
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST

from perdure.domain.limits import MAX_PRINCIPAL, MAX_TENANT
from perdure.domain.model import Owner
from perdure.store.codec import is_plain

from .models import RequestContext

__all__ = ["ANONYMOUS", "LOCAL", "Identify", "bounded", "by_token", "is_one_of_many"]

Identify = Callable[[RequestContext], Owner]
"""Says whose request it is. Called on every request that touches a task; must not block."""

_NAMELESS: Final = ""
ANONYMOUS = Owner(_NAMELESS, "anonymous")
LOCAL = Owner(_NAMELESS, "local")


def is_one_of_many(owner: Owner) -> bool:
    """Whether the bounds of one owner hold for it, so that there is something left for others.

    Without authentication all clients are one owner. Over HTTP one of them could use up what is there for all; over
    stdio there are no others.
    """
    return owner not in (ANONYMOUS, LOCAL)


def by_token(tenant_claim: str | None = None) -> Identify:
    """The default: issuer, client and subject of the access token are the principal, `tenant_claim` of it the tenant.

    A token that lacks the claim belongs to the nameless tenant. The claim's value is a non-empty string, or an integer,
    which is the same as its decimal text. A token that has anything else there (null, an empty string, a list) names no
    tenant, and must not fall into one that others share: its requests are refused with -32600.
    """

    def identify(ctx: RequestContext) -> Owner:
        token = get_access_token()
        if token is None:
            return LOCAL if ctx.request is None else ANONYMOUS
        client, issuer, subject = principal_components(token)
        claims = token.claims or {}
        tenant = _tenant(claims[tenant_claim]) if tenant_claim is not None and tenant_claim in claims else _NAMELESS
        return Owner(tenant, json.dumps([issuer, client, subject], separators=(",", ":")))

    return identify


def bounded(identify: Identify) -> Identify:
    """The same, for owners that every store can keep: they are part of its keys.

    What it returns raises MCPError (-32600) for one that is too long, or has a null or a lone surrogate in it.
    """

    def known(ctx: RequestContext) -> Owner:
        owner = identify(ctx)
        for part, text, most in (("tenant", owner.tenant, MAX_TENANT), ("principal", owner.principal, MAX_PRINCIPAL)):
            if not is_plain(text):
                raise MCPError(INVALID_REQUEST, f"The {part} that the request is from is no text that can be stored")
            size = len(text.encode())
            if size > most:
                message = f"The {part} that the request is from takes {size} bytes, and {most} is the limit"
                raise MCPError(INVALID_REQUEST, message)
        return owner

    return known


def _tenant(claim: object) -> str:
    if isinstance(claim, str) and claim != _NAMELESS:
        return claim
    if isinstance(claim, int) and not isinstance(claim, bool):
        return str(claim)
    raise MCPError(INVALID_REQUEST, "The access token names no tenant that can be used")
