"""What one `Tasks` has of tools: those that clients may call, and the code of each version that a worker may run.

They are two things. A retired version is run and not called, and of a tool that can be called there is one version. On
which server the tools are listed is not known here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcp.server.extension import ToolBinding

from perdure.domain.errors import ConfigurationError
from perdure.engine.handler import Handler

from .declaration import TaskTool
from .handler import ToolHandler

__all__ = ["Catalog"]


class Catalog:
    """`tools`: by name. `handlers`: what a worker calls, by the operation's handler.

    `state`: what the server's lifespan yielded, which tools find in their context.
    """

    def __init__(self) -> None:
        self.tools: dict[str, TaskTool] = {}
        self.handlers: dict[str, Handler] = {}
        self.state: object = None
        self._unlisted: list[ToolBinding] = []

    def add(self, fn: Callable[..., Any], tool: TaskTool, sdk_options: dict[str, Any]) -> None:
        """Take up `fn` as a task tool: to be listed by the server, and run by workers.

        Raises:
            ConfigurationError: the name is taken, or this version of it is retired.
        """
        if tool.name in self.tools:
            raise ConfigurationError(f"There is a task tool named {tool.name!r} already")
        self._add_handler(tool)
        self.tools[tool.name] = tool
        self._unlisted.append(ToolBinding(fn, kwargs=sdk_options))

    def add_retired(self, tool: TaskTool) -> None:
        """Keep the code of an earlier version of a tool, for the tasks that it began. Nobody can call it.

        Raises:
            ConfigurationError: there is such a version already, retired or not.
        """
        self._add_handler(tool)

    def _add_handler(self, tool: TaskTool) -> None:
        if tool.handler in self.handlers:
            which = f"version {tool.options.version!r} of" if tool.options.version else "code without a version for"
            raise ConfigurationError(
                f"There is {which} the task tool {tool.name!r} already: a version is one code, current or retired"
            )
        self.handlers[tool.handler] = ToolHandler(tool, lambda: self.state)

    def unlisted(self) -> list[ToolBinding]:
        """The tools that were added since this was last asked, as the SDK lists them."""
        unlisted, self._unlisted = self._unlisted, []
        return unlisted
