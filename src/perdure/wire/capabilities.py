"""What a client declared on a request, in the words that the store keeps: tasks or not, and which input kinds.

Capabilities are declared on each request and carry over to no other. For a task, those of the request that created it
say what its code may ask, and those of a later request may only narrow what that request is shown (contract 4).
"""

from __future__ import annotations

from mcp_types import ClientCapabilities
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from perdure.tools import kinds

from .errors import missing_extension
from .models import EXTENSION, RequestContext

__all__ = ["declares_tasks", "input_kinds", "is_modern", "kinds_of", "require_tasks"]


def is_modern(ctx: RequestContext) -> bool:
    """Whether the request came in the stateless era; the handshake era knows neither this extension nor MRTR."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def declares_tasks(ctx: RequestContext) -> bool:
    """Whether this very request declared the Tasks extension."""
    return is_modern(ctx) and _names_tasks(ctx)


def require_tasks(ctx: RequestContext) -> None:
    """Refuse a modern request that needs the extension and did not declare it, before anything is looked up.

    Raises:
        MCPError: -32021 with `data.requiredCapabilities`.
    """
    if not _names_tasks(ctx):
        raise missing_extension()


def _names_tasks(ctx: RequestContext) -> bool:
    capabilities = ctx.session.client_capabilities
    return capabilities is not None and EXTENSION in (capabilities.extensions or {})


def input_kinds(ctx: RequestContext) -> frozenset[str]:
    """The kinds of input that this request's client can give. None in the handshake era: there is no way to ask."""
    return kinds_of(ctx.session.client_capabilities) if is_modern(ctx) else frozenset()


def kinds_of(capabilities: ClientCapabilities | None) -> frozenset[str]:
    """The kinds of input that are declared by `capabilities`."""
    if capabilities is None:
        return frozenset()
    elicitation, sampling = capabilities.elicitation, capabilities.sampling
    # An empty elicitation capability means forms, as it did before there were two modes.
    declared = {
        kinds.FORM: elicitation is not None and (elicitation.form is not None or elicitation.url is None),
        kinds.URL: elicitation is not None and elicitation.url is not None,
        kinds.SAMPLING: sampling is not None,
        kinds.SAMPLING_TOOLS: sampling is not None and sampling.tools is not None,
        kinds.ROOTS: capabilities.roots is not None,
    }
    return frozenset(kind for kind, is_declared in declared.items() if is_declared)
