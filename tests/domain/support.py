"""Values that the tests of the domain share."""

from perdure.domain.lifecycle import Ask, Event, Expire, Finish, Kind, Partial, Report, RequestCancel, Resume, created
from perdure.domain.model import Cancelled, Completed, Failed, Failure, InputRequest, NewTask, Operation, Owner, Task

OWNER = Owner("acme", "ada")
TASK_ID = "tsk_" + "a" * 32
NOW = 1_800_000_000_000

RESULT = Completed({"content": [], "isError": False})
FAILURE = Failed(Failure(-32602, "No such thing", {"thing": 7}), "It was not there")
QUESTION = InputRequest("name", {"method": "elicitation/create"}, NOW)

EVENTS: dict[Kind, Event] = {
    Kind.REPORT: Report("halfway"),
    Kind.ASK: Ask((QUESTION,)),
    Kind.PARTIAL: Partial((QUESTION,)),
    Kind.RESUME: Resume(),
    Kind.REQUEST_CANCEL: RequestCancel(),
    Kind.COMPLETE: Finish(RESULT),
    Kind.FAIL: Finish(FAILURE),
    Kind.CANCEL: Finish(Cancelled()),
    Kind.EXPIRE: Expire(),
}
"""One event of each kind that the table knows."""


OPERATION = Operation("tools/call", "report", {"size": "large"}, accepts=frozenset({"elicitation"}))


def new_task(*, ttl_ms: int | None = None, keep_ms: int | None = None) -> NewTask:
    return NewTask(
        id=TASK_ID,
        owner=OWNER,
        operation=OPERATION,
        ttl_ms=ttl_ms,
        keep_ms=keep_ms,
        poll_ms=500,
    )


def fresh(*, ttl_ms: int | None = None, keep_ms: int | None = None) -> Task:
    """A task as it is right after its creation at `NOW`."""
    return created(7, new_task(ttl_ms=ttl_ms, keep_ms=keep_ms), NOW)
