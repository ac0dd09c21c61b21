"""A Celery task as external work: sent once it is on record, looked after by a timer, revoked if the task is cancelled.

The Celery task's id is made from the handle, so it is the same in whichever process asks. A server that died between
sending it and recording that asks the result backend whether a worker has begun it by now, and sends it again only if
it knows of none. It knows of a task that runs only where `task_track_started` is set, which by default it is not, and
of one that still waits in the broker nobody knows: so it may be delivered twice, under one id (`self.request.id`), as
brokers do by themselves too. What it does should be safe to do twice, or be kept by that id.

Celery is not imported here. Install it by `perdure[celery]`, with what your broker and your result backend need.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import uuid
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol

from perdure.domain.errors import ConfigurationError
from perdure.domain.handles import Handle
from perdure.domain.policy import Duration, milliseconds
from perdure.tools.context import TaskContext
from perdure.tools.external import Finished

__all__ = ["Signature", "job_id", "look", "revoke", "run_celery", "send"]

logger = logging.getLogger(__name__)

_PENDING: Final = "PENDING"
"""What Celery says of an id that it has not heard of: it may wait in the broker, or be nobody's; or run untracked."""
_warned: Final[set[str]] = set()
"""The Celery tasks of which it was said that they may run twice."""
_sending = threading.Lock()
"""Celery's Redis backend subscribes for each task that it sends, over one connection that threads must not share."""


class Signature(Protocol):
    """The part of `celery.Signature` that is used."""

    @property
    def app(self) -> Any:
        """The Celery application."""
        ...

    def apply_async(self, *, task_id: str, **options: Any) -> Any:
        """Send it, under an id."""
        ...


async def run_celery(
    task: TaskContext,
    name: str,
    signature: Signature,
    *,
    timeout: Duration | None = None,  # noqa: ASYNC109 - of the job, which no cancel scope reaches
    poll: Duration = "1s",
    returns: Any = None,
) -> Any:
    """Have a Celery worker do something, and wait for its result without holding anything in memory.

    If the task is cancelled, or the time is up, the Celery task is revoked, and terminated if a worker runs it already
    (which Celery can do in its prefork pool only). That is told to the workers that are connected just then; one that
    comes later begins a job whose time is up no more, but one that was cancelled it may.

    Args:
        task: the tool's context.
        name: of the job, for the journal; other jobs may have the same.
        signature: the call, as `resize.s("large")`. Of a chain, the last task's result counts. Have
            `task_track_started` set for it: without that, which is Celery's default, a worker that dies just after
            sending it has it sent again also while it runs.
        timeout: how long to wait for the result, from the first time on. Celery forgets results after `result_expires`
            (a day by default), so have one.
        poll: how soon to look for the first time. The looks get rarer, down to one in five minutes.
        returns: what to read the result as; the JSON value itself by default.

    Raises:
        StepFailed: the Celery task failed, and `type` names its exception; or it was revoked (type "TaskRevokedError");
            or there was no result in time (type "TimeoutError"); or it could not be sent.
        ConfigurationError: it would never give a result: there is no result backend, or the task ignores its result.
        InvalidDuration: a duration is unreadable, zero or negative.
    """
    _check(signature)
    _warn_if_untracked(signature)
    expires = None if timeout is None else milliseconds(timeout, what="timeout") / 1000
    return await task.external(
        name,
        partial(send, signature, expires),
        cancel=partial(revoke, signature),
        poll=partial(look, signature),
        every=poll,
        timeout=timeout,
        returns=returns,
    )


def _check(signature: Signature) -> None:
    if signature.app.conf.result_backend is None:
        raise ConfigurationError(
            "The Celery application has no result backend: give it one, or nobody hears of results"
        )
    with suppress(KeyError):  # the task's code is on the workers only
        if getattr(getattr(signature, "type", None), "ignore_result", False):
            raise ConfigurationError("The Celery task has ignore_result set, so nobody would hear how it ended")


def _warn_if_untracked(signature: Signature) -> None:
    """Once of each. No error: this process may not know what is set on the workers, and the task may be safe."""
    name, tracked = str(getattr(signature, "task", "")), None
    with suppress(KeyError):
        tracked = getattr(getattr(signature, "type", None), "track_started", None)
    if (signature.app.conf.task_track_started if tracked is None else tracked) or name in _warned:
        return
    _warned.add(name)
    logger.warning(
        "the Celery task %s may be run a second time while it runs, if a worker dies just after sending it: set "
        "task_track_started, here and on its workers",
        name,
    )


# What the verb is given. All of these run in threads, and any of them may be called again.


def send(signature: Signature, expires: float | None, handle: Handle) -> None:
    """Send it, unless an earlier run did, which then could not record it, and a worker is known to have begun it.

    No worker begins it once `expires` seconds have passed.
    """
    job, options = job_id(handle), {} if expires is None else {"expires": expires}
    with _sending:
        if signature.app.AsyncResult(job).state != _PENDING:
            return
        result = signature.apply_async(task_id=job, **options)
        # Nobody will read the result from this object, and the backend would listen for it for ever.
        forget = getattr(result.backend, "remove_pending_result", None)
        if forget is not None:
            forget(result)


def look(signature: Signature, handle: Handle) -> Finished | None:
    """How it ended; None while Celery does not say that it has."""
    found = signature.app.AsyncResult(job_id(handle))
    match found.state:
        case "SUCCESS":
            return Finished(found.result)
        case "FAILURE":
            error = found.result
            return Finished(error=str(error), type=type(error).__name__)
        case "REVOKED":
            return Finished(error="The Celery task was revoked", type="TaskRevokedError")
        case _:
            return None


def revoke(signature: Signature, handle: Handle) -> None:
    """Give it up, also if a worker runs it already."""
    signature.app.control.revoke(job_id(handle), terminate=True)


def job_id(handle: Handle) -> str:
    """The id. Celery shows ids to many, so the token must not be read from it."""
    return str(uuid.UUID(bytes=hashlib.sha256(handle.id.encode()).digest()[:16]))
