"""The server with the usual tools that the wire's tests have."""

from tests.wire.conftest import scene, tools

__all__ = ["scene", "tools"]
