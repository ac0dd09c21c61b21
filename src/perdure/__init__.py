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
    AlreadySettled,
    ConfigurationError,
    InputKeyReused,
    InvalidDuration,
    JournalMismatch,
    LimitExceeded,
    NotStorable,
    PerdureError,
    StepFailed,
    StepInterrupted,
    StoreUnavailable,
    StoreUnusable,
    TaskNotFound,
    Unreadable,
)
from perdure.domain.handles import Handle
from perdure.domain.limits import Limits
from perdure.domain.model import Owner
from perdure.domain.policy import Duration
from perdure.domain.retry import Retry
from perdure.ops.app import Tasks
from perdure.ops.serve import serve
from perdure.store.base import Store
from perdure.store.keys import KeyRing
from perdure.tools.context import TaskContext
from perdure.tools.external import ExternalWork, Finished
from perdure.tools.questions import Answer, Elicit, ElicitUrl, ListRoots, Sample
from perdure.tools.sync_context import SyncTaskContext
from perdure.wire.identity import Identify
from perdure.wire.models import EXTENSION_VERSION

__version__ = "0.1.0"

__all__ = [
    "EXTENSION_VERSION",
    "AlreadySettled",
    "Answer",
    "ConfigurationError",
    "Duration",
    "Elicit",
    "ElicitUrl",
    "ExternalWork",
    "Finished",
    "Handle",
    "Identify",
    "InputKeyReused",
    "InvalidDuration",
    "JournalMismatch",
    "KeyRing",
    "LimitExceeded",
    "Limits",
    "ListRoots",
    "NotStorable",
    "Owner",
    "PerdureError",
    "Retry",
    "Sample",
    "StepFailed",
    "StepInterrupted",
    "Store",
    "StoreUnavailable",
    "StoreUnusable",
    "SyncTaskContext",
    "TaskContext",
    "TaskNotFound",
    "Tasks",
    "Unreadable",
    "serve",
]
