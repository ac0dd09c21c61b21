"""Whose request it is: from a request's verified token to the `Owner` of tasks.

Only what the SDK verified counts; nothing that a client writes into a request has a say. Without authentication, stdio
is one local owner, and HTTP is one anonymous owner whose only secret is the task id.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import principal_components
from mcp.server.context import ServerRequestContext

from perdure.domain.model import Owner

__all__ = ["ANONYMOUS", "LOCAL", "Identify", "by_token"]

Identify = Callable[[ServerRequestContext[Any, Any]], Owner]
"""Says whose request it is. Called on every request that touches a task; must not block."""

ANONYMOUS = Owner("", "anonymous")
LOCAL = Owner("", "local")


def by_token(tenant_claim: str | None = None) -> Identify:
    """The default: issuer, client and subject of the access token are the principal, `tenant_claim` of it the tenant.

    A token that lacks the claim belongs to the nameless tenant.
    """

    def identify(ctx: ServerRequestContext[Any, Any]) -> Owner:
        token = get_access_token()
        if token is None:
            return LOCAL if ctx.request is None else ANONYMOUS
        client, issuer, subject = principal_components(token)
        tenant = (token.claims or {}).get(tenant_claim, "") if tenant_claim else ""
        return Owner(str(tenant), json.dumps([issuer, client, subject], separators=(",", ":")))

    return identify
