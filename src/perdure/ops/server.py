"""What `tasks.server(name)` returns: an `MCPServer` whose `run` looks before it listens, and ends in order."""

from __future__ import annotations

import socket
import threading
from contextlib import nullcontext
from typing import Any, Literal

from mcp.server.mcpserver import MCPServer
from starlette.applications import Starlette

from . import exposure, health, http, ports, stdin, verdicts
from .assembly import Assembly

__all__ = ["Server"]


class Server(MCPServer[Any]):
    """An `MCPServer` that looks at its store, its port and who reaches it before it runs, and that ends in order.

    What can't be used or must not be is one line and no traceback. It does not end the process, as `serve` does: what
    the program has to do after `run` is its own.
    """

    assembly: Assembly

    def run(self, transport: Literal["stdio", "sse", "streamable-http"] = "stdio", **kwargs: Any) -> None:
        """As `MCPServer.run`.

        Raises:
            SystemExit: the store or the port can't be used, or everybody could call it; the message says what to do.
        """
        host = kwargs.get("host", "127.0.0.1")
        if transport != "stdio":
            allowed = self.assembly.allow_anonymous
            exposure.refuse(self, host, allowed=allowed, say="Tasks(…, allow_anonymous=True)")
        self.assembly.take_keys()
        self.assembly.preflight()
        match transport:
            case "stdio":
                main = threading.current_thread() is threading.main_thread()
                with stdin.ends_when_told(self.assembly.end_subscriptions) if main else nullcontext():
                    super().run("stdio", **kwargs)
            case "streamable-http":
                self._run_http(ports.bind(host, kwargs.pop("port", 8000)), **kwargs)
            case _:
                # The SDK binds by itself, later; whoever takes the port between is told of in its words.
                ports.close(ports.bind(host, kwargs.get("port", 8000)))
                exposure.warn(self)
                super().run(transport, **kwargs)

    def streamable_http_app(self, **options: Any) -> Starlette:
        """As `MCPServer.streamable_http_app`, with `Limits.request_body` as the bound of a request.

        An `HTTPException` of Starlette's that its token verifier raises is the response.
        """
        options.setdefault("max_request_body_size", self.assembly.options.limits.request_body)
        return verdicts.heard(super().streamable_http_app(**options))

    def _run_http(self, sockets: list[socket.socket], **options: Any) -> None:
        exposure.warn(self)
        self.assembly.warn_of_keys()
        health.offer(self, self.assembly)
        level = self.settings.log_level.lower()
        http.listen(self.streamable_http_app(**options), sockets, log_level=level, told=self.assembly.stop_working)
