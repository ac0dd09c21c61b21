"""Requests that the gateway makes by itself: how one looks, and who it says that it comes from. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    encode_header_value,
)
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY
from mcp_types.version import LATEST_MODERN_VERSION

from perdure.domain.model import JSONObject
from perdure.domain.names import EXTENSION

__all__ = ["meta", "request"]


def meta(client_info: Mapping[str, str]) -> JSONObject:
    """The envelope of one; it declares the Tasks extension and nothing else."""
    return {
        PROTOCOL_VERSION_META_KEY: LATEST_MODERN_VERSION,
        CLIENT_CAPABILITIES_META_KEY: {"extensions": {EXTENSION: {}}},
        CLIENT_INFO_META_KEY: dict(client_info),
    }


def request(method: str, params: JSONObject, name: str | None = None) -> tuple[JSONObject, dict[str, str]]:
    """The message, and the headers that go with it. `params`: with the envelope. `name`: what `Mcp-Name` says."""
    message: JSONObject = {"jsonrpc": "2.0", "id": f"gateway-{method}", "method": method, "params": params}
    headers = {MCP_PROTOCOL_VERSION_HEADER: LATEST_MODERN_VERSION, MCP_METHOD_HEADER: method}
    return message, headers if name is None else {**headers, MCP_NAME_HEADER: encode_header_value(name)}
