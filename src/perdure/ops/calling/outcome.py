"""What a command came to, as an exit code, as words and as JSON.

The codes are a promise to scripts. What the client raises becomes one of them here, and nowhere else.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ErrorData,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from perdure.client import (
    ClientError,
    InputDeclined,
    KeyReused,
    TaskCancelled,
    TaskError,
    TaskExpired,
    TaskFailed,
    TaskLost,
    TaskTimedOut,
    Unsure,
)
from perdure.client.faults import has_no_room, retry_after
from perdure.ops import text

from . import answering
from .endpoint import TOKEN
from .hints import Hints

__all__ = ["WORKING", "Code", "Outcome", "of_error", "of_result", "spoken", "worst"]


WORKING: Final = "working"
"""The status of a task that goes on, and of which no other one was seen."""
_LOST: Final = (
    f"The server does not know the task, or not as one of yours: is {TOKEN} the token with which it was called?"
)


class Code(enum.IntEnum):
    """How a command ends."""

    DONE = 0
    """There is a result, or what was asked for was done."""
    FAILED = 1
    """The tool reported an error, its task failed, the server refused the call, an answer was not taken, or a task was
    over that was to stop."""
    USAGE = 2
    """The command line is wrong; no tool was called, and nothing asked of a task."""
    CANCELLED = 3
    """The task was cancelled."""
    RUNNING = 4
    """The task goes on: detached, timed out, or waiting for an answer."""
    UNKNOWN = 5
    """The server can't be reached, or no longer knows the task, or nobody knows whether the call happened."""
    LATER = 7
    """The server has no room just now. Nothing was called, and the same command may succeed later."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one call or task.

    `status`: a task's, as it was last seen; else `lost`, `expired`, `unsure`, `unavailable` or `refused`. `words`: what
    there is to say beside the result. `id`: by which it is resumed; None if there is nothing to resume. `questions`:
    what a task that goes on asks, as on the wire.
    """

    code: Code
    status: str
    words: str = ""
    id: str | None = None
    is_task: bool = True
    tool: str = ""
    result: CallToolResult | None = None
    error: dict[str, Any] | None = None
    questions: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def plain(self) -> dict[str, Any]:
        """As `--json` prints it."""
        found: dict[str, Any] = {"task": self.id if self.is_task else None, "tool": self.tool, "status": self.status}
        if self.result is not None:
            found["result"] = self.result.model_dump(by_alias=True, mode="json", exclude_none=True)
        if self.error is not None:
            found["error"] = self.error
        elif self.words:
            found["message"] = self.words
        if self.questions:
            found["questions"] = answering.plain(self.questions)
        if not self.is_task and self.id is not None:
            found["key"] = self.id
        return found


def of_result(result: CallToolResult, *, id: str | None, tool: str, is_task: bool) -> Outcome:
    """A call that has its result. A tool that reports an error is no success."""
    code = Code.FAILED if result.is_error else Code.DONE
    return Outcome(code, "completed", id=id if is_task else None, is_task=is_task, tool=tool, result=result)


def of_error(error: BaseException, *, id: str | None, tool: str, hints: Hints) -> Outcome | None:
    """What an error means; None if it is no error of a call, but one of ours."""
    match error:
        case Unsure(record=record):
            words = f"{error}. {hints.about(record.key, 'forget')} strikes it off the list, once you know"
            return Outcome(Code.UNKNOWN, "unsure", words, id=record.key, is_task=False, tool=tool)
        case InputDeclined(error=said):
            return Outcome(Code.FAILED, "refused", said.message, tool=tool)
        case KeyReused():
            return Outcome(Code.FAILED, "refused", str(error), is_task=False, tool=tool)
        case MCPError(error=said) if has_no_room(error):
            after = retry_after(error)
            again = f"; try again in {math.ceil(after)} s" if after else ""
            words = f"The server has no room just now: {said.message}{again}"
            return Outcome(Code.LATER, "refused", words, id=id, tool=tool, error=_plain(said))
        case MCPError(error=said):
            words = f"The server refused: {said.message} ({said.code})"
            return Outcome(Code.FAILED, "refused", words, id=id, tool=tool, error=_plain(said))
        case ClientError():
            return _of_task(error, (error.task_id if isinstance(error, TaskError) else "") or id, tool)
        case _:
            return None


def _of_task(error: ClientError, id: str | None, tool: str) -> Outcome:
    match error:
        case TaskFailed(error=said):
            return Outcome(Code.FAILED, "failed", str(error), id=id, tool=tool, error=_plain(said))
        case TaskCancelled():
            return Outcome(Code.CANCELLED, "cancelled", str(error), id=id, tool=tool)
        case TaskTimedOut():
            return Outcome(Code.RUNNING, WORKING, "There is no result yet; the task goes on", id=id, tool=tool)
        case TaskExpired():
            return Outcome(Code.UNKNOWN, "expired", str(error), id=id, tool=tool)
        case TaskLost():
            return Outcome(Code.UNKNOWN, "lost", _LOST, id=id, tool=tool)
        case _:
            return Outcome(Code.UNKNOWN, "unavailable", str(error), id=id, tool=tool)


def _plain(error: ErrorData) -> dict[str, Any]:
    return error.model_dump(by_alias=True, mode="json", exclude_none=True)


def worst(outcomes: list[Outcome]) -> Code:
    """The code of several: the first that is not 0, in their order."""
    return next((each.code for each in outcomes if each.code), Code.DONE)


def spoken(result: CallToolResult) -> Iterator[str]:
    """A result as a person reads it: its texts, and the rest by name; its structure, if there is nothing else."""
    for content in result.content:
        yield _spoken(content)
    if not result.content and result.structured_content is not None:
        yield text.document(result.structured_content)


def _spoken(content: ContentBlock) -> str:
    match content:
        case TextContent(text=said):
            return text.block(said)
        case ImageContent(data=data, mime_type=kind) | AudioContent(data=data, mime_type=kind):
            return f"[{text.line(kind)}, {len(data) * 3 // 4} bytes; --json has it]"
        case ResourceLink(uri=uri, name=name):
            return f"{text.line(name)}: {text.line(str(uri))}"
        case EmbeddedResource(resource=TextResourceContents(text=said)):
            return text.block(said)
        case EmbeddedResource(resource=BlobResourceContents(uri=uri)):
            return f"[{text.line(str(uri))}; --json has it]"
        case _:
            return f"[{type(content).__name__}; --json has it]"
