"""Durable MCP Tasks: tool calls that survive crashes, deploys and days of waiting for a person.

    from perdure import TaskContext, Tasks

    tasks = Tasks("sqlite:///tasks.db")
    mcp = tasks.server("reports")

    @tasks.tool(ttl="15m")
    async def generate_report(size: str, task: TaskContext) -> dict: ...

    mcp.run("streamable-http")

These names are the public surface; everything else may change between releases.
"""

from perdure.domain.errors import (
    ConfigurationError,
    InputKeyReused,
    InvalidDuration,
    PerdureError,
    StoreUnavailable,
    StoreUnusable,
)
from perdure.domain.model import Owner
from perdure.domain.policy import Duration
from perdure.ops.app import Tasks
from perdure.ops.serve import serve
from perdure.store.base import Store
from perdure.wire.context import SyncTaskContext, TaskContext
from perdure.wire.identity import Identify
from perdure.wire.models import EXTENSION_VERSION
from perdure.wire.questions import Answer, Elicit, ElicitUrl, ListRoots, Sample

__version__ = "0.1.0"

__all__ = [
    "EXTENSION_VERSION",
    "Answer",
    "ConfigurationError",
    "Duration",
    "Elicit",
    "ElicitUrl",
    "Identify",
    "InputKeyReused",
    "InvalidDuration",
    "ListRoots",
    "Owner",
    "PerdureError",
    "Sample",
    "Store",
    "StoreUnavailable",
    "StoreUnusable",
    "SyncTaskContext",
    "TaskContext",
    "Tasks",
    "serve",
]
