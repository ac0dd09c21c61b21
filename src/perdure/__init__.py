"""Durable MCP Tasks: tool calls that survive crashes, deploys and days of waiting for a person.

    from perdure import TaskContext, Tasks

    tasks = Tasks("sqlite:///tasks.db")
    mcp = tasks.server("reports")

    @tasks.tool(ttl="15m")
    async def generate_report(size: str, task: TaskContext) -> dict: ...

    mcp.run("streamable-http")

These names are the public surface; everything else may change between releases.

Each is imported when somebody takes it. The program `perdure` is loaded through this package, whatever it does: most of
its commands need few of them, and what Ctrl-C is to do while they are imported must be said before.
"""

TYPE_CHECKING = False  # that of `typing`, which takes its time to import

if TYPE_CHECKING:
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

_PLACES = {
    "perdure.domain.errors": (
        "AlreadySettled",
        "ConfigurationError",
        "InputKeyReused",
        "InvalidDuration",
        "JournalMismatch",
        "LimitExceeded",
        "NotStorable",
        "PerdureError",
        "StepFailed",
        "StepInterrupted",
        "StoreUnavailable",
        "StoreUnusable",
        "TaskNotFound",
        "Unreadable",
    ),
    "perdure.domain.handles": ("Handle",),
    "perdure.domain.limits": ("Limits",),
    "perdure.domain.model": ("Owner",),
    "perdure.domain.policy": ("Duration",),
    "perdure.domain.retry": ("Retry",),
    "perdure.ops.app": ("Tasks",),
    "perdure.ops.serve": ("serve",),
    "perdure.store.base": ("Store",),
    "perdure.store.keys": ("KeyRing",),
    "perdure.tools.context": ("TaskContext",),
    "perdure.tools.external": ("ExternalWork", "Finished"),
    "perdure.tools.questions": ("Answer", "Elicit", "ElicitUrl", "ListRoots", "Sample"),
    "perdure.tools.sync_context": ("SyncTaskContext",),
    "perdure.wire.identity": ("Identify",),
    "perdure.wire.models": ("EXTENSION_VERSION",),
}
_PLACE = {name: place for place, names in _PLACES.items() for name in names}

if not TYPE_CHECKING:  # whoever checks types knows the names from above, and that there are no others

    def __getattr__(name: str) -> object:
        """As Python has it: a name that is not there yet."""
        from importlib import import_module

        if name not in _PLACE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_PLACE[name]), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
