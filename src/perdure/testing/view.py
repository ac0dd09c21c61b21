"""What a test sees of a task: all that its owner sees, and its operator."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mcp_types import CallToolResult

from perdure.domain.journal import Journal
from perdure.domain.model import Failure, JSONObject, Status
from perdure.domain.timeline import Event, Inspection

__all__ = ["TaskView", "quoted"]


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task as it was when the harness last looked, with all that its owner and its operator can see."""

    inspection: Inspection
    raised: tuple[BaseException, ...] = ()
    """What its runs raised under the harness and its client is not told, oldest first: what they logged as that."""

    @property
    def id(self) -> str:
        """The task's id."""
        return self.inspection.task.id

    @property
    def status(self) -> Status:
        """Its status."""
        return self.inspection.task.status

    @property
    def message(self) -> str | None:
        """Its status message."""
        return self.inspection.task.message

    @property
    def questions(self) -> dict[str, JSONObject]:
        """The open questions, by key, as the client gets them."""
        return {question.key: question.request for question in self.inspection.task.inputs}

    @property
    def result(self) -> CallToolResult:
        """What the tool returned.

        Raises:
            AssertionError: the task is not `completed`.
        """
        if self.inspection.task.result is None:
            raise AssertionError(
                f"The task {self._standing}, so there is no result. If it has gone on since the harness looked: "
                "task = await harness.look(task)"
            )
        return CallToolResult.model_validate(self.inspection.task.result)

    @property
    def value(self) -> Any:
        """The tool's return value, as JSON values: its structured content, or its text if it has none."""
        result = self.result
        if result.structured_content is not None:
            content = result.structured_content
            return content["result"] if content.keys() == {"result"} else content
        return "".join(getattr(block, "text", "") for block in result.content)

    @property
    def error(self) -> Failure | None:
        """The JSON-RPC error of a failed task."""
        return self.inspection.task.error

    @property
    def _standing(self) -> str:
        if self.questions:
            return f"is {self.status} and asks {quoted(self.questions)}"
        said = self.message if self.error is None else self.error.message
        return f"is {self.status} ({said})" if said else f"is {self.status}"

    @property
    def journal(self) -> Journal:
        """What is on record of its steps, sleeps and questions."""
        return self.inspection.journal

    @property
    def timeline(self) -> tuple[Event, ...]:
        """What happened to it that is out of the ordinary, oldest first."""
        return self.inspection.events


def quoted(keys: Iterable[str]) -> str:
    """Keys as a message names them."""
    return ", ".join(map(repr, keys))
