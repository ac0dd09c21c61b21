"""For programs that call task tools: of this library's servers, and of any other that speaks the extension.

    from mcp import Client
    from perdure.client import HTTP, Tasks

    tasks = Tasks("journal.db")
    async with Client(HTTP(url), extensions=[tasks], elicitation_callback=ask) as client:
        result = await client.call_tool("generate_report", {"size": "large"})

These names are the room's public surface. It knows the domain and the SDK, and nothing of how tasks are kept, run or
served, so that it works with any server.
"""

from .errors import (
    AnswerRefused,
    AnswerTooLarge,
    ClientError,
    Disconnected,
    InputDeclined,
    JournalUnusable,
    KeyReused,
    Malformed,
    RequestRefused,
    TaskCancelled,
    TaskError,
    TaskExpired,
    TaskFailed,
    TaskLost,
    TaskTimedOut,
    Unavailable,
    Unsendable,
    Unsure,
)
from .handle import TaskHandle
from .http import HTTP
from .journal import Journal, Record
from .snapshot import TERMINAL, Snapshot
from .tasks import Resumed, Tasks, server_of

__all__ = [
    "HTTP",
    "TERMINAL",
    "AnswerRefused",
    "AnswerTooLarge",
    "ClientError",
    "Disconnected",
    "InputDeclined",
    "Journal",
    "JournalUnusable",
    "KeyReused",
    "Malformed",
    "Record",
    "RequestRefused",
    "Resumed",
    "Snapshot",
    "TaskCancelled",
    "TaskError",
    "TaskExpired",
    "TaskFailed",
    "TaskHandle",
    "TaskLost",
    "TaskTimedOut",
    "Tasks",
    "Unavailable",
    "Unsendable",
    "Unsure",
    "server_of",
]
